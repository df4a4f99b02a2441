"""``sidefetch whatif``: questions and flags, in the tests' own Spark."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from proxy.analysis.generate.cluster import cluster_of
from proxy.analysis.generate.mix import FleetMix
from proxy.analysis.generate.sidecar import sidecar_rows
from proxy.analysis.whatif import chunks, racks, sizing, slots, upgrade
from proxy.cli import main, whatif
from tests.analysis.rows import ledger_of


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("ledger"))
    assert main(["ledger", "generate", "--out", folder, "--proxies", "2", "--seed", "4"]) == 0
    return folder


@pytest.fixture
def in_memory(spark: SparkSession, ours: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    """Spares the reading of files, which is most of the time that a question takes."""
    rows = [*sidecar_rows(FleetMix(), 1, 0, 0.2), *cluster_of(FleetMix(topics=3), 1, 0).topology_rows(0)]
    monkeypatch.setattr(whatif, "_ledger", lambda *_: ledger_of(spark, *rows))


@pytest.fixture
def ours(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the commands use the tests' Spark session, and leave it running."""

    @contextmanager
    def there(master: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
        assert (master, settings) == ("local[*]", {})
        yield spark

    monkeypatch.setattr(whatif, "spark_at", there)


def answered(capsys: pytest.CaptureFixture[str], *flags: str) -> list[dict[str, str]]:
    assert main(["whatif", *flags, "--csv"]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


@pytest.mark.usefixtures("in_memory")
def test_more_slots_refuse_fewer(capsys: pytest.CaptureFixture[str]) -> None:
    rows = answered(capsys, "slots", "LEDGER", "--slots", "8", "64", "--followers", "1")

    assert list(rows[0]) == slots.RESULT.names
    assert [row["slots"] for row in rows] == ["8", "64"] * (len(rows) // 2)
    assert {row["refused"] for row in rows if row["slots"] == "64"} == {"0"}
    assert all(int(row["fetches"]) for row in rows)


@pytest.mark.usefixtures("in_memory")
def test_with_all_brokers_in_one_rack_the_readers_of_others_cross(capsys: pytest.CaptureFixture[str]) -> None:
    rows = answered(capsys, "racks", "LEDGER", *(f"--broker={node}=a" for node in (1, 2, 3)), "--reader=a=b")

    assert list(rows[0]) == racks.RESULT.names
    assert all(row["then_crossing_bytes"] == row["bytes"] for row in rows if row["reader_rack"] != "a")


@pytest.mark.usefixtures("ours")
def test_files_are_read(ledger: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = answered(capsys, "chunks", ledger, "--kib", "64", "128")

    assert list(rows[0]) == chunks.RESULT.names
    assert [row["chunk_bytes"] for row in rows] == ["65536", "131072"]


@pytest.mark.usefixtures("in_memory")
def test_tables_are_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", "upgrade", "LEDGER", "--software", "nobody's"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == upgrade.RESULT.names
    assert rows
    assert all("no" in row.split() for row in rows)

    assert main(["whatif", "sizing", "--clients=10", "--partitions=10", "--brokers=1", "--slots", "8", "80"]) == 0
    header, few, many = capsys.readouterr().out.splitlines()
    assert header.split() == sizing.RESULT.names
    assert (few.split()[-1], many.split()[-1]) == ("no", "yes")


@pytest.mark.usefixtures("ours")
@pytest.mark.parametrize(
    "flags",
    [
        ["racks", "LEDGER", "--broker", "one=a"],
        ["racks", "LEDGER", "--reader", "a"],
        ["sizing", "--brokers", "0"],
        ["sizing", "--read", "0"],
        ["slots", "/nowhere/at/all"],
    ],
)
def test_invalid_flags_are_refused(flags: Sequence[str], ledger: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", *(ledger if flag == "LEDGER" else flag for flag in flags)]) == 2
    assert "accepted:" in capsys.readouterr().err


def test_long_table_is_truncated_with_hint(capsys: pytest.CaptureFixture[str]) -> None:
    whatif._print(["name", "size"], ([f"row\n\x9b\u202e{number}", 1000 * number] for number in range(60)))

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 52
    assert lines[0].split() == ["name", "size"]
    assert lines[2].split() == ["row???1", "1,000"]
    assert "--csv" in lines[-1]


def test_negative_slot_count_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["whatif", "slots", str(Path.cwd()), "--slots", "-1"])
    assert "--slots" in capsys.readouterr().err
