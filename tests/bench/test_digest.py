"""The tables that are made from a run."""

import pytest

from tests.bench.digest import digest
from tests.bench.runs import case, run_of


def test_digest_reports_environment_and_noise() -> None:
    text = digest(run_of(quick=True))

    assert "one quick run of 01 March 2026, commit `abc`" in text
    assert "A CPU, 2 cores, Linux x86_64; Python 3.11.2." in text
    assert "loopback; HAProxy 2.6.12 and Kroxylicious 0.12.0 with one thread each" in text
    assert "20 ms before, 33 at most, and 20 after, 33 at most;\n  1.25% of the CPU" in text
    assert "Of 0 expectations 0 were met." in text


def test_without_haproxy_none_is_named() -> None:
    assert "loopback; Kroxylicious 0.12.0 with one thread each" in digest(run_of(haproxy=None))


def test_ways_are_columns_and_absent_ways_are_omitted() -> None:
    text = digest(
        run_of(
            case("reading 1 KiB records, 1 client: speed", "MB/s", {"direct": 2000, "Sidefetch": 1000}),
            case("reading 1 KiB records, 1 client: CPU of the proxy", "s/GB", {"Sidefetch": 0.7}),
        )
    )

    assert (
        "| reading | direct | Sidefetch |\n|---|---|---|\n"
        "| 1 client, records of 1 KiB: speed | 2,000 MB/s | 1,000 MB/s |\n"
        "| 1 client, records of 1 KiB: CPU of the proxy |  | 0.7 s/GB |\n"
    ) in text


def test_figures_of_one_label_share_a_row_and_their_unit() -> None:
    text = digest(
        run_of(
            case("one record a fetch, in order: p50", "ms", {"direct": 0.2, "Sidefetch": 0.3}),
            case("one record a fetch, in order: p99", "ms", {"direct": 1.5, "Sidefetch": 2.25}),
        )
    )

    assert "| 1 client, in order, one record a fetch: p50 and p99 | 0.2 and 1.5 ms | 0.3 and 2.25 ms |\n" in text


def test_tables_with_ways_of_their_own_name_them_unless_it_is_sidefetch_alone() -> None:
    text = digest(
        run_of(
            case("telemetry, reading 1 KiB records", "MB/s", {"off": 100, "full": 50}),
            case("start: first answer", "s", {"Sidefetch": 0.5}),
            case("start: end", "s", {"python": 0.1}),
        )
    )

    assert "| telemetry, reading 1 KiB records | off: 100 MB/s, full: 50 MB/s |\n" in text
    assert "| start: first answer | 0.5 s |\n| start: end | python: 0.1 s |\n" in text


def test_missed_expectations_are_listed() -> None:
    met = {**case("a", "s", {}), "expectations": [{"text": "fine", "is_met": True}]}

    text = digest(run_of(met, case("b", "s", {}, "0.3 of direct, at least 0.5")))

    assert text.endswith("Of 2 expectations 1 were met; these were not:\n\n- 0.3 of direct, at least 0.5\n")
    assert "fine" not in text


@pytest.mark.parametrize("name", ["something else", "reading 1 KiB records"])
def test_a_table_that_no_row_speaks_of_is_left_out(name: str) -> None:
    assert "|" not in digest(run_of(case(name, "MB/s", {"direct": 1})))
