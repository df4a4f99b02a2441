"""Runs of empty rows become one, in which sums are sums."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.events import SessionRecord
from proxy.telemetry.folding import LONGEST_US, RowFolding
from proxy.telemetry.ledger import RECORDS, Row, problems
from proxy.telemetry.rows import RowMaker
from tests.telemetry.asked import Asker, exchange, fetch, share, wall_us

ROWS = RowMaker("p", "a", wall_us)


def empty(at_s: float, number: int = 7, **other: Any) -> Row:
    """An exchange that brought nothing."""
    reported = {
        "with_data": 0,
        "source_bytes": 0,
        "delivered_bytes": 0,
        "held_bytes": 0,
        "sources": (),
        "ended_s": at_s,
    }
    row = ROWS.make_row(Asker(number), exchange(**(reported | other)), at_s)
    assert row is not None
    return row


def idle(at_s: float, number: int = 7, **other: Any) -> Row:
    """A fetch that brought nothing."""
    reported = {"record_bytes": 0, "answered": 0, "topics": (), "sent_s": at_s - 0.5, "answered_s": at_s}
    row = ROWS.make_row(Asker(number), fetch(**(reported | other)), at_s)
    assert row is not None
    return row


def folded(*rows: Row) -> list[Row]:
    folds = RowFolding()
    return [*(out for row in rows for out in folds.add(row)), *folds.finish()]


def test_a_run_of_empty_exchanges_becomes_one_row() -> None:
    (row,) = folded(*(empty(float(at_s), wanted=at_s, request_bytes=10) for at_s in (1, 2, 3)))

    assert not list(problems(row))
    assert (row["exchanges"], row["wanted"], row["request_bytes"], row["poll_us"]) == (3, 6, 30, 1_200_000)
    assert (row["first_at_us"], row["at_us"]) == (wall_us(1), wall_us(3))


def test_run_of_empty_fetches_has_first_and_last_epoch() -> None:
    (row,) = folded(*(idle(float(at_s), epoch=at_s) for at_s in (1, 2, 3)))

    assert not list(problems(row))
    assert (row["fetches"], row["epoch_first"], row["epoch_last"]) == (3, 1, 3)
    assert (row["size"], row["request_bytes"], row["broker_us"]) == (90, 270, 1_500_000)


def test_row_with_records_ends_run_and_is_not_folded() -> None:
    busy = ROWS.make_row(Asker(), exchange(), 2.0)
    assert busy is not None

    rows = folded(empty(1), empty(1.5), busy, busy, empty(3))

    assert [row["exchanges"] for row in rows] == [2, 1, 1, 1]
    assert [row["with_data"] for row in rows] == [0, 1, 1, 0]


def test_rows_with_undelivered_control_records_are_not_folded() -> None:
    assert len(folded(empty(1, source_bytes=78), empty(2, source_bytes=78))) == 2


def test_a_run_lasts_a_minute_at_most() -> None:
    rows = folded(*(empty(at_s / 2) for at_s in range(2 * 150)))

    assert [row["exchanges"] for row in rows] == [121, 121, 58]
    assert all(row["at_us"] - row["first_at_us"] <= LONGEST_US for row in rows)


def test_run_is_complete_after_one_minute_without_further_rows() -> None:
    folds = RowFolding()
    folds.add(empty(1))

    assert folds.take_old(wall_us(60.9)) == []
    assert [row["exchanges"] for row in folds.take_old(wall_us(61))] == [1]
    assert folds.finish() == []


def test_connections_and_fetchers_have_runs_of_their_own() -> None:
    rows = folded(
        *(empty(at_s, number) for at_s in (1, 2) for number in (7, 8)),
        *(idle(at_s, 7, fetcher_id=fetcher) for at_s in (1, 2) for fetcher in ("1-live", "1-long-poll")),
    )

    assert [row.get("exchanges", row.get("fetches")) for row in rows] == [2, 2, 2, 2]
    assert [(row["connection_id"], row.get("fetcher_id")) for row in rows] == [
        (7, None),
        (8, None),
        (7, "1-live"),
        (7, "1-long-poll"),
    ]


def test_runs_of_shared_caches_end_with_their_own_cache_and_add_up_client_fetches() -> None:
    folds = RowFolding()
    for at_s in (1, 2):
        for cache in (8, 9):
            record = fetch(record_bytes=0, fetcher_id=f"cache-{cache}/1-live", client_fetches=5, answered_s=at_s)
            row = ROWS.make_row(Asker(cache, is_shared_cache=True), record, at_s)
            assert row is not None
            assert folds.add(row, cache) == []

    (ended,) = folds.take_runs_of(8)

    assert (ended["fetcher_id"], ended["fetches"], ended["client_fetches"]) == ("cache-8/1-live", 2, 10)
    assert [row["fetcher_id"] for row in folds.finish()] == ["cache-9/1-live"]


@pytest.mark.parametrize("change", [{"version": 5}, {"session_id": 3}, {"node": 2}, {"client_id": "other"}])
def test_another_version_session_broker_or_client_is_another_run(change: dict[str, Any]) -> None:
    assert [row["exchanges"] for row in folded(empty(1), empty(2, **change), empty(3, **change))] == [1, 2]


def test_runs_of_one_connection_are_returned_when_it_ends() -> None:
    folds = RowFolding()
    for row in (empty(1, 7), empty(1, 8), idle(1, 7)):
        folds.add(row)

    assert [(row["record"], row["connection_id"]) for row in folds.take_runs_of(7)] == [
        ("exchange", 7),
        ("fetch", 7),
    ]
    assert [row["connection_id"] for row in folds.finish()] == [8]


def test_sources_and_errors_that_are_the_same_become_one() -> None:
    first = empty(1, sources=(share("t", wanted=2, record_bytes=0), share("u", wanted=1)), errors=((3, 1),))
    second = empty(2, sources=(share("u", wanted=1), share("v", wanted=1)), errors=((3, 2), (6, 1)))

    (row,) = folded(first, second)

    assert [(source["topic"], source["wanted"]) for source in row["sources"]] == [("t", 2), ("u", 2), ("v", 1)]
    assert row["errors"] == [{"code": 3, "n": 3}, {"code": 6, "n": 1}]


def test_session_row_is_returned_at_once() -> None:
    row = ROWS.make_row(Asker(), SessionRecord(1, 5, "created", 3), 1.0)
    assert row is not None

    assert RowFolding().add(row) == [row]


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(1, 3), st.booleans(), st.booleans(), st.integers(0, 99)),
        max_size=60,
    )
)
def test_folding_keeps_all_sums_and_the_order_of_rows_of_each_fetcher(
    reported: list[tuple[int, int, bool, bool, int]],
) -> None:
    rows, at_s = [], 0
    for pause_s, number, is_fetch, is_busy, size in reported:
        at_s += pause_s
        made = idle if is_fetch else empty
        records = {"record_bytes": size} if is_fetch else {"with_data": 1, "source_bytes": size}
        rows.append(made(float(at_s), number, request_bytes=size, **(records if is_busy else {})))
    summed = [
        (record, column.name)
        for record in ("exchange", "fetch")
        for column in RECORDS[record]
        if column.fold == "sum"
    ]
    before = [sum(row[name] for row in rows if row["record"] == record) for record, name in summed]

    out = folded(*rows)

    assert [sum(row[name] for row in out if row["record"] == record) for record, name in summed] == before
    for number in (1, 2, 3):
        for record in ("exchange", "fetch"):
            ends = [row["at_us"] for row in out if (row["connection_id"], row["record"]) == (number, record)]
            assert ends == sorted(ends)
