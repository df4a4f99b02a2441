"""The batches of aborted transactions, compared with a simple walk over all records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.convert.aborted import AbortedBatchFinder
from proxy.errors import BadRecords
from proxy.wire.records import entries
from tests.convert.logs import Record, batch, marker
from tests.strategies import examples


def left_out(log: bytes, listed: list[tuple[int, int]]) -> list[int]:
    """First offsets of the batches that are of aborted transactions."""
    aborted = AbortedBatchFinder(listed)
    view = memoryview(log)
    return [each.base_offset for each in entries(view) if aborted.next_is_aborted(each, view)]


def data(offset: int, producer_id: int) -> bytes:
    return batch([Record(offset), Record(offset + 1)], producer_id=producer_id)


@st.composite
def histories(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]], list[int]]:
    """A log of transactions, the broker's list for all of it, and the batches that were aborted."""
    log, offset = b"", 0
    listed: list[tuple[int, int]] = []
    bad: list[int] = []
    opened: dict[int, list[int]] = {}
    for _ in range(draw(st.integers(1, 12))):
        producer = draw(st.integers(0, 2))
        if producer in opened and draw(st.booleans()):
            commits = draw(st.booleans())
            log += marker(offset, producer, commits=commits)
            offset += 1
            batches = opened.pop(producer)
            if not commits:
                listed.append((producer, batches[0]))
                bad += batches
        else:
            log += data(offset, producer)
            opened.setdefault(producer, []).append(offset)
            offset += 2
    return log, draw(st.permutations(listed)), sorted(bad)


@examples(200)
@given(histories())
def test_the_batches_of_aborted_transactions_are_found(
    history: tuple[bytes, list[tuple[int, int]], list[int]],
) -> None:
    log, listed, bad = history

    assert left_out(log, listed) == bad


def test_a_producer_is_aborted_from_the_first_offset_named_to_its_next_abort_marker() -> None:
    log = data(0, 1) + marker(2, 1, commits=False) + data(3, 1) + marker(5, 1, commits=True)

    assert left_out(log, [(1, 0)]) == [0]


def test_a_commit_marker_ends_no_abort() -> None:
    log = data(0, 1) + marker(2, 1, commits=True) + data(3, 1) + marker(5, 1, commits=False)

    assert left_out(log, [(1, 0)]) == [0, 3]


def test_a_transaction_that_began_before_the_log_is_aborted_too() -> None:
    assert left_out(data(10, 4) + data(12, 5), [(4, 3)]) == [10]


def test_batches_without_a_transaction_are_never_left_out() -> None:
    assert left_out(batch([Record(0)]) + data(1, 2), [(-1, 0), (3, 0)]) == []


def test_copied_finder_is_independent_of_its_original() -> None:
    log = memoryview(data(0, 1) + marker(2, 1, commits=False) + data(3, 1))
    first, end, second = entries(log)
    aborted = AbortedBatchFinder([(1, 0)])
    assert aborted.next_is_aborted(first, log)

    twin = aborted.copy()
    aborted.next_is_aborted(end, log)

    assert not aborted.next_is_aborted(second, log)
    assert twin.next_is_aborted(second, log)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_control_batch_without_a_type_is_damaged(key: bytes | None) -> None:
    log = data(0, 1) + batch([Record(2, 0, key, None)], producer_id=1, is_control=True)

    with pytest.raises(BadRecords, match="without a type"):
        left_out(log, [(1, 0)])


def test_an_emptied_control_batch_ends_nothing() -> None:
    emptied = batch([], base_offset=2, last_offset=2, producer_id=1, is_control=True, records_bytes=b"")

    assert left_out(data(0, 1) + emptied + data(3, 1), [(1, 0)]) == [0, 3]
