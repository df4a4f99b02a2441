"""The logs of one client: the records that fit into a response, and whether all other logs are confirmed."""

from collections.abc import Mapping

from proxy.fetch.positions import Positions
from proxy.wire.fetch import FetchPartition, PartitionKey
from tests.fetch.cached import append, cache_of, positions_of, read
from tests.old_clients import batch

LARGE, SMALL = batch(0, b"x" * 1000), batch(0, b"x")


def delivered(
    positions: Positions, limits: Mapping[int, int], max_bytes: int, *, is_cut: bool = False
) -> list[int]:
    """Return the partitions with records in a response; *limits*: the limit of each partition."""
    asks = {PartitionKey("t", partition): FetchPartition(0, limit) for partition, limit in limits.items()}
    found = positions.deliverable(asks.__getitem__, max_bytes, is_cut=is_cut)
    return [key.partition for key, _ in found.slices]


def ready(*sizes: int, max_bytes: int, is_cut: bool = False) -> tuple[list[int], bool]:
    """Return the partitions that fit, and whether all do; *sizes* are their limits; two batches are large."""
    positions = positions_of(cache_of())
    asks = {PartitionKey("t", n): FetchPartition(0, size) for n, size in enumerate(sizes)}
    for n, size in enumerate(sizes):
        append(read(positions, n, max_bytes=size), LARGE if n < 2 else SMALL)
    found = positions.deliverable(asks.__getitem__, max_bytes, is_cut=is_cut)
    return [key.partition for key, _ in found.slices], found.is_all


def test_first_batch_larger_than_a_limit_is_delivered_alone() -> None:
    assert ready(10, 5000, 5000, max_bytes=50_000) == ([0], False)
    assert ready(5000, 5000, max_bytes=10) == ([0], False)


def test_later_batch_larger_than_a_limit_waits_for_its_turn() -> None:
    partitions, _ = ready(5000, 10, 5000, max_bytes=50_000)
    assert partitions == [0, 2]
    assert ready(5000, 5000, 5000, max_bytes=len(LARGE) + len(SMALL)) == ([0, 2], False)


def test_batches_that_are_cut_later_are_delivered_beside_each_other() -> None:
    assert ready(10, 10, 5000, max_bytes=50_000, is_cut=True) == ([0, 1, 2], True)


def test_partition_with_more_records_than_its_limit_counts_as_its_limit() -> None:
    positions = positions_of(cache_of())
    log = read(positions, 0)
    append(log, SMALL)
    append(log, batch(1, b"x" * 1000))

    found = positions.deliverable(lambda _: FetchPartition(0, 500), 50_000, is_cut=False)

    assert [len(each.records) for _, each in found.slices] == [len(SMALL)]
    assert (found.counted_bytes, found.is_all) == (500, True)


def test_logs_are_delivered_in_the_order_in_which_they_became_ready() -> None:
    positions = positions_of(cache_of())
    logs = {n: read(positions, n) for n in range(3)}
    for n in (2, 0, 1):
        append(logs[n], SMALL)

    assert delivered(positions, dict.fromkeys(range(3), 1000), 2 * len(SMALL)) == [2, 0]


def test_partitions_that_do_not_fit_together_take_turns() -> None:
    positions = positions_of(cache_of())
    asks = {PartitionKey("t", n): FetchPartition(0, 1) for n in range(3)}
    for n in range(3):
        append(read(positions, n, max_bytes=1), SMALL)

    turns = []
    for _ in range(5):
        found = positions.deliverable(asks.__getitem__, 1, is_cut=False)
        positions.record_turns([key for key, _ in found.slices], is_all=found.is_all)
        turns += [key.partition for key, _ in found.slices]
        for key, _ in found.slices:  # its next records are there first
            positions.ready = {key: None, **positions.ready}

    assert turns == [0, 1, 2, 0, 1]


def test_delivered_log_must_be_found_again_at_the_next_offset() -> None:
    positions = positions_of(cache_of())
    log = read(positions, 0)
    append(log, SMALL)

    positions.delivered(log.key.partition, 1)

    assert (list(positions.ready), list(positions.loose)) == ([], [log.key.partition])
    assert read(positions, 0, 1) is log
    assert (list(positions.ready), list(positions.loose)) == ([], [])


def test_reader_behind_the_end_of_a_log_is_ready_at_once() -> None:
    cache = cache_of()
    ahead, behind = positions_of(cache), positions_of(cache)
    log = read(ahead, 0)
    append(log, SMALL)
    ahead.delivered(log.key.partition, 1)
    read(ahead, 0, 1)

    assert read(behind, 0, 0) is log

    assert list(behind.ready) == [log.key.partition]
    assert list(ahead.ready) == []


def test_reader_at_an_offset_that_no_log_has_begins_a_new_one() -> None:
    cache = cache_of()
    one, other = positions_of(cache), positions_of(cache)

    assert read(one, 0, 5) is not read(other, 0, 4)


def test_probe_does_not_read_records_that_are_cached() -> None:
    cache = cache_of()
    first, second = positions_of(cache, is_probe=True), positions_of(cache, is_probe=True)
    log = read(first, 0)
    append(log, SMALL)

    assert read(second, 0, 0) is not log
    assert read(second, 0, log.log.end) is log

    assert list(first.ready) == [log.key.partition]


def test_probe_reads_another_log_than_the_one_whose_records_it_was_not_given() -> None:
    positions = positions_of(cache_of(), is_probe=True)
    log = read(positions, 0)
    append(log, SMALL)

    assert read(positions, 0, 0) is not log

    assert list(log.readers) == []


def test_response_is_sure_if_all_partitions_are_ready() -> None:
    positions = positions_of(cache_of())
    positions.number = 1
    logs = [read(positions, n) for n in range(2)]
    append(logs[0], SMALL)
    assert not positions.is_sure(0.0, (), has_records=True)

    append(logs[1], SMALL)

    assert positions.is_sure(0.0, (), has_records=True)


def test_response_is_not_sure_while_a_log_must_be_found_again() -> None:
    positions = positions_of(cache_of())
    log = read(positions, 0)
    append(log, SMALL)
    positions.log_void(log)

    assert not positions.is_sure(0.0, (), has_records=True)
    assert positions.is_sure(0.0, (log.key.partition,), has_records=True)


def test_partition_without_records_or_confirmation_is_unserved() -> None:
    cache = cache_of()
    positions = positions_of(cache)
    positions.number = 1
    logs = [read(positions, n) for n in range(3)]
    append(logs[0], SMALL)
    logs[1].confirmed = 1

    assert positions.unserved((), 0.0) == [logs[2].key.partition]
    assert positions.unserved((logs[2].key.partition,), 0.0) == []
