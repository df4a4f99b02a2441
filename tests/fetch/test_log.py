"""Cached logs: slices of what brokers sent, wherever responses begin and end, and their aborted transactions."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.fetch.log import CachedLog
from tests.relay.model.broker import ModelBroker
from tests.relay.model.filters import java, librdkafka
from tests.relay.model.logs import Kind, Log, Stored
from tests.strategies import examples

HUGE = 1 << 30

Step = Kind | Literal["compacted"]
"""A batch, or a gap."""

some_step: st.SearchStrategy[tuple[Step, int]] = st.tuples(
    st.sampled_from([*["transactional", "abort", "commit"] * 3, "plain", "compacted"]), st.sampled_from([7, 7, 8])
)
some_history = st.lists(some_step, min_size=8, max_size=24)


def log_of(history: list[tuple[Step, int]]) -> Log:
    """Return a log with one batch for each step; a compacted one leaves a gap."""
    broker = ModelBroker(18, {"a": 1}, 0)
    log = broker.log(("a", 0))
    for kind, producer in history:
        is_open = any(each.producer == producer and each.last is None for each in log.transactions())
        if kind == "compacted":
            log.end += 2
        elif is_open or kind in ("plain", "transactional"):
            broker.append(log, kind, 1 + log.end * 3 % 5, -1 if kind == "plain" else producer)
    log.replicate()
    return log


def fill(cached: CachedLog, log: Log, sizes: list[int]) -> None:
    """Append responses of so many batches each, and then the rest of the log."""
    for size in [*sizes, len(log.batches)]:
        asked, bound = cached.end, log.last_stable
        batches = [batch for batch in log.batches if asked <= batch.last and batch.base < bound][:size]
        # A broker's list is that of the offsets up to the end of the read, which may be beyond the cut.
        response = memoryview(b"".join(batch.data for batch in batches))
        assert cached.append(asked, response, log.aborted(asked, bound)) == bool(batches)


def stored(log: Log, records: bytes) -> list[Stored]:
    """Return the batches of the log that these bytes are."""
    found = []
    while records:
        batch = next(each for each in log.batches if records.startswith(each.data))
        found.append(batch)
        records = records[len(batch.data) :]
    return found


@given(
    history=some_history,
    start=st.integers(0, 8),
    sizes=st.lists(st.integers(1, 6), max_size=6),
    trimmed=st.integers(0, 12),
    data=st.data(),
)
@examples(300)
def test_a_slice_has_the_next_whole_batches_and_exactly_their_aborted_transactions(
    history: list[tuple[Step, int]], start: int, sizes: list[int], trimmed: int, data: st.DataObject
) -> None:
    log = log_of(history)
    cached = CachedLog(start)
    fill(cached, log, sizes)
    cached.trim(trimmed)
    assert cached.start <= max(start, trimmed)
    kept = [batch for batch in log.batches if batch.last >= cached.start and batch.base < log.last_stable]
    assert cached.size_bytes == sum(len(batch.data) for batch in kept)
    offset = data.draw(st.integers(max(cached.start - 1, 0), cached.end + 1))
    most = data.draw(st.integers(0, 400))
    expected = [batch for batch in kept if batch.last >= offset]

    found = cached.slice(offset, most, at_least_one=True)

    if not cached.start <= offset < cached.end:
        assert found is None
        return
    assert found is not None
    batches = stored(log, bytes(found.records))
    assert batches == expected[: len(batches)]
    assert found.next_offset == batches[-1].last + 1
    following = expected[len(batches) :]
    assert len(batches) == 1 or len(found.records) <= most
    assert not following or len(found.records) + len(following[0].data) > most
    assert sorted(found.aborted) == sorted(log.aborted(offset, found.next_offset))
    committed = [batch for batch in batches if log.is_committed(batch)]
    assert java(batches, found.aborted) == committed
    assert librdkafka(batches, found.aborted) == committed


@given(history=some_history, sizes=st.lists(st.integers(1, 4), max_size=6), most=st.integers(1, 400))
@examples(100)
def test_slices_one_after_another_deliver_the_whole_log_once(
    history: list[tuple[Step, int]], sizes: list[int], most: int
) -> None:
    log = log_of(history)
    cached = CachedLog(0)
    fill(cached, log, sizes)
    delivered, offset = b"", 0

    while (found := cached.slice(offset, most, at_least_one=True)) is not None:
        delivered += found.records
        offset = found.next_offset

    assert offset == cached.end
    assert stored(log, delivered) == [batch for batch in log.batches if batch.base < log.last_stable]


def test_a_first_batch_beyond_the_limit_is_delivered_only_on_request() -> None:
    log = log_of([("plain", -1), ("plain", -1)])
    cached = CachedLog(0)
    fill(cached, log, [])

    assert cached.slice(0, 1, at_least_one=False) is None
    assert cached.slice(0, 1, at_least_one=True) is not None


def test_an_incomplete_batch_at_the_end_is_cut_off() -> None:
    log = log_of([("plain", -1), ("plain", -1)])
    cached = CachedLog(0)

    assert cached.append(0, memoryview(log.read(0, 2, HUGE, at_least_one=True)[:-1]))

    assert (cached.end, cached.size_bytes) == (1, len(log.batches[0].data))
    assert not cached.append(1, memoryview(log.batches[1].data[:-1]))


def test_only_a_response_to_a_request_at_the_end_is_appended() -> None:
    log = log_of([("plain", -1)] * 3)
    cached = CachedLog(0)
    cached.append(0, memoryview(log.batches[0].data))

    for asked in (0, 2):
        with pytest.raises(ValueError, match="does not continue"):
            cached.append(asked, memoryview(log.batches[asked].data))
    with pytest.raises(ValueError, match="overlaps"):
        cached.append(1, memoryview(log.batches[0].data + log.batches[1].data))


def test_a_log_may_begin_within_a_batch() -> None:
    broker = ModelBroker(18, {"a": 1}, 0)
    log = broker.log(("a", 0))
    broker.append(log, "plain", 5, -1)
    log.replicate()
    cached = CachedLog(3)

    assert cached.append(3, memoryview(log.batches[0].data))

    assert (cached.start, cached.end) == (3, 5)
    found = cached.slice(4, HUGE, at_least_one=False)
    assert found is not None
    assert found.next_offset == 5


def test_a_slice_ends_before_a_batch_that_does_not_fit_even_if_a_smaller_one_follows() -> None:
    broker = ModelBroker(18, {"a": 1}, 0)
    log = broker.log(("a", 0))
    for count in (1, 9, 1):
        broker.append(log, "plain", count, -1)
    log.replicate()
    cached = CachedLog(0)
    fill(cached, log, [2, 1])

    found = cached.slice(0, 2 * len(log.batches[0].data), at_least_one=True)

    assert found is not None
    assert found.next_offset == 1
