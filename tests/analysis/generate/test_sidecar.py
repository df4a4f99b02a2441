"""Rows of sidecars that never were agree with the ledger and with each other."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator

import pytest

from proxy.analysis.generate.connection import REQUEST_BYTES, RESPONSE_BYTES
from proxy.analysis.generate.fetcher import UPSTREAM_MAX_WAIT_US, VERSION
from proxy.analysis.generate.mix import FETCH, KINDS, FleetMix
from proxy.analysis.generate.sidecar import sidecar_rows
from proxy.convert.versions.table import UPGRADES
from proxy.telemetry.folding import RowFolding
from proxy.telemetry.ledger import RECORDS, Row, problems
from proxy.wire.fetch import request_layout, response_layout

WHOLE = FleetMix(losses=0, duplicates=0, hourly_evictions=0.5, hourly_resets=0.2, restart_h=2, hourly_news=60)
"""Eventful, and nothing of it is missing."""


def fleet(mix: FleetMix, seed: int = 1, sidecars: int = 12, hours: float = 3) -> Iterator[Row]:
    return (row for index in range(sidecars) for row in sidecar_rows(mix, seed, index, hours))


@pytest.fixture(scope="module")
def whole() -> list[Row]:
    return list(fleet(WHOLE))


def of(rows: list[Row], record: str) -> list[Row]:
    return [row for row in rows if row["record"] == record]


def test_rows_are_those_of_the_ledger_and_all_kinds_occur() -> None:
    rows = list(fleet(FleetMix(losses=1e-3, duplicates=1e-3, hourly_evictions=0.5)))

    assert not [problem for row in rows for problem in problems(row)]
    assert {row["record"] for row in rows} == RECORDS.keys() - {"topology"}
    assert {row["kind"] for row in of(rows, "fetch")} == {"full", "incremental", "sessionless"}
    assert len({(row["proxy_id"], row["seq"]) for row in rows}) < len(rows)


def test_the_same_seed_makes_the_same_rows_and_another_one_others() -> None:
    def text(seed: int) -> str:
        return "".join(json.dumps(row) for row in fleet(FleetMix(), seed, sidecars=3, hours=1))

    assert text(1) == text(1)
    assert text(1) != text(2)


def test_every_sequence_number_is_present_or_reported_lost() -> None:
    numbers: dict[str, list[int]] = defaultdict(list)
    for row in fleet(FleetMix(losses=1e-2, duplicates=0), sidecars=4):
        first = row["seq_first"] if row["record"] == "lost" else row["seq"]
        numbers[row["proxy_id"]] += range(first, row["seq"] + 1)

    for seqs in numbers.values():
        assert seqs == list(range(len(seqs)))


def test_sums_are_those_of_their_parts(whole: list[Row]) -> None:
    for row in of(whole, "exchange"):
        waits = ("poll", "broker", "budget", "convert", "throttle", "write")
        assert row["total_us"] == sum(row[f"{cause}_us"] for cause in waits)
        assert row["source_bytes"] == sum(source["bytes"] for source in row["sources"])
        assert row["wanted"] == sum(source["wanted"] for source in row["sources"])
        assert row["response_bytes"] >= row["delivered_bytes"]
        if row["converted_to"] is None:
            assert row["delivered_bytes"] == row["source_bytes"]
        else:
            assert row["delivered_bytes"] == row["converted_out_bytes"] + row["padding_bytes"]
    assert any(row["padding_bytes"] for row in of(whole, "exchange"))


def test_delivered_bytes_equal_fetched_bytes_by_connection_and_broker(whole: list[Row]) -> None:
    brought, fetched = Counter[tuple[str, int, int]](), Counter[tuple[str, int, int]]()
    for row in of(whole, "exchange"):
        for source in row["sources"]:
            brought[row["proxy_id"], row["connection_id"], source["node"]] += source["bytes"]
    for row in of(whole, "fetch"):
        fetched[row["proxy_id"], row["connection_id"], row["node"]] += row["record_bytes"]

    assert brought.keys() == fetched.keys()
    assert brought == fetched
    assert sum(brought.values())


def test_fetches_are_within_sessions_that_were_granted(whole: list[Row]) -> None:
    now: dict[tuple[str, int, str], int] = {}
    lives = Counter[str]()
    for row in whole:  # sessions do not name their connection, but in this fleet a fetcher's node does
        if row["record"] == "session" and row["side"] == "upstream":
            lives[row["event"]] += 1
            if row["event"] != "created":
                assert row["event"] == "refused" or row["reason"]
        if row["record"] == "fetch":
            fetcher = (row["proxy_id"], row["connection_id"], row["fetcher_id"])
            if row["kind"] == "incremental" and not row["error"]:
                assert row["session_id"] == now[fetcher] != 0
            now[fetcher] = row["session_id"]

    assert lives["created"] == lives["evicted"] + lives["reset"] + lives["closed"] + len(
        {fetcher for fetcher, session_id in now.items() if session_id} - closed_fetchers(whole)
    )
    assert all(lives[event] for event in ("created", "refused", "evicted", "reset", "closed"))


def closed_fetchers(rows: list[Row]) -> set[tuple[str, int, str]]:
    """Return the fetchers whose session was closed, by the session id."""
    ended = {(row["proxy_id"], row["session_id"]) for row in of(rows, "session") if row["event"] == "closed"}
    return {
        (row["proxy_id"], row["connection_id"], row["fetcher_id"])
        for row in of(rows, "fetch")
        if (row["proxy_id"], row["session_id"]) in ended
    }


def test_runs_are_as_a_sidecar_folds_them(whole: list[Row]) -> None:
    runs = [row for row in whole if row.get("exchanges", 0) > 1 or row.get("fetches", 0) > 1][:200]
    assert {row["record"] for row in runs} == {"exchange", "fetch"}

    for run in runs:
        folds = RowFolding()
        singles = list(unfolded(run))
        assert not [row for single in singles for row in folds.add(single)]
        assert folds.finish() == [run]


def unfolded(run: Row) -> Iterator[Row]:
    """A session's first exchange names everything, and so it need not divide: it is then the first one's."""
    times = run.get("exchanges") or run["fetches"]
    sums = [
        column.name for column in RECORDS[run["record"]] if column.fold == "sum" and run[column.name] is not None
    ]
    for index in range(times):
        row = dict(run)
        for name in sums:
            each, rest = divmod(run[name], times)
            row[name] = each + (rest if index == 0 else 0)
        row["at_us"] = row["first_at_us"] = run["first_at_us"] + (run["at_us"] - run["first_at_us"]) * index // (
            times - 1
        )
        if run["record"] == "fetch":
            row["epoch_first"] = row["epoch_last"] = run["epoch_first"] + index
        else:
            row["client_session_epoch"] = run["client_session_epoch"] - (times - 1 - index)
            row["sources"] = [
                {**source, **{name: source[name] // times for name in ("wanted", "bytes", "request_share_bytes")}}
                for source in run["sources"]
            ]
        yield row


def test_partitions_take_the_bytes_that_they_take_on_the_wire() -> None:
    assert [request_layout(version).stride for version in range(len(REQUEST_BYTES))] == list(REQUEST_BYTES)
    assert [response_layout(version).stride for version in range(len(RESPONSE_BYTES))] == list(RESPONSE_BYTES)


def test_generated_upgrades_are_those_of_sidefetch() -> None:
    rows = of(list(fleet(FleetMix(), sidecars=40, hours=0.2)), "client")
    reported = {(api["key"], api["version"], api["upgraded_to"]) for row in rows for api in row["apis"]}

    assert {to for key, _, to in reported if key == FETCH} == {VERSION}
    upgrades = {(int(key), version): upgrade.to for (key, version), upgrade in UPGRADES.items()}
    assert {each for each in reported if each[0] != FETCH} == {
        (key, version, upgrades.get((key, version), version)) for key, version, _ in reported if key != FETCH
    }
    assert any(version != to for _, version, to in reported)


def test_there_is_more_in_the_afternoon_than_at_night() -> None:
    hours = Counter[int]()
    for row in fleet(FleetMix(odd=0), hours=24, sidecars=6):
        if row["record"] == "exchange" and row["with_data"]:
            hours[row["at_us"] // 3_600_000_000 % 24] += 1

    assert sum(hours[hour] for hour in (13, 14, 15)) > 2 * sum(hours[hour] for hour in (1, 2, 3))


def test_client_kinds_declare_conversion_by_fetch_version() -> None:
    assert {kind.converted_to for kind in KINDS if kind.fetch_version < 2} == {0}
    assert {kind.converted_to for kind in KINDS if 2 <= kind.fetch_version < 4} == {1}
    assert {kind.converted_to for kind in KINDS if kind.fetch_version >= 4} == {None}


def test_idle_fetchers_wait_as_long_as_sidefetch_does(whole: list[Row]) -> None:
    for row in of(whole, "fetch"):
        if row["fetches"] > 1:
            assert row["broker_us"] == row["fetches"] * UPSTREAM_MAX_WAIT_US
