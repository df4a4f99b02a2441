"""The logs of a cache: which are found and dropped, which move often, and the time between requests."""

import pytest

from proxy.cluster.routing import Source
from proxy.cluster.topology import BrokerId
from proxy.fetch.commands import FetcherId, FetcherKind
from proxy.fetch.fetcher import Fetcher
from proxy.fetch.shared_log import KEPT_S, LogIndex, SharedLog
from tests.fetch.cached import append, cache_of, key_of, positions_of, read
from tests.old_clients import batch

RECORDS = batch(0, b"x")


def moved(*times_s: float) -> SharedLog:
    log = SharedLog(key_of(0), 0)
    for time_s in times_s:
        log.moved(1, time_s)
    return log


@pytest.mark.parametrize(
    ("times_s", "now_s", "is_live"),
    [
        ((), 1.0, False),
        ((1.0,), 1.0, False),
        ((1.0, 1.5), 1.5, False),
        ((1.0, 1.5, 2.0), 2.0, True),
        ((1.0, 1.5, 2.0), 2.9, True),
        ((1.0, 1.5, 2.0), 3.0, False),
        ((1.0, 1.5, 2.0, 2.5), 3.4, True),
        ((1.0, 3.5, 6.0), 6.0, False),
    ],
)
def test_log_is_live_that_moved_three_times_in_2_s(times_s: tuple[float, ...], now_s: float, is_live: bool) -> None:
    assert moved(*times_s).is_live(now_s) is is_live


@pytest.mark.parametrize(("partitions", "pause_s"), [(1_000, 0.001), (5_000, 0.005), (10_000, 0.01)])
def test_pause_after_a_small_response_grows_with_the_number_of_partitions(partitions: int, pause_s: float) -> None:
    assert paced(partitions, 100) == pytest.approx(50 + pause_s)


@pytest.mark.parametrize(("record_bytes", "partitions"), [(100, 900), (0, 5_000), (1 << 16, 5_000)])
def test_there_is_no_pause_for_few_partitions_nor_after_an_empty_or_large_response(
    record_bytes: int, partitions: int
) -> None:
    assert paced(partitions, record_bytes) < 50


def paced(partitions: int, record_bytes: int) -> float:
    """Return when the next request may be sent after a response at second 50."""
    fetcher = Fetcher(FetcherId(Source(BrokerId(1)), FetcherKind.LONG_POLL), "leader", 0.0)
    fetcher.logs = {key_of(n).partition: SharedLog(key_of(n), 0) for n in range(partitions)}
    cache_of()._pace(fetcher, record_bytes, 50.0)
    return fetcher.paced_until_s


# ------------------------------------------------------------------------------------------- logs


def test_log_is_found_at_each_offset_of_its_range() -> None:
    index = LogIndex()
    log = index.find(key_of(0), 5, 0.0)
    assert log.log.append(5, memoryview(batch(5, b"x", b"x")))

    assert [index.find(key_of(0), offset, 0.0) is log for offset in range(4, 9)] == [False, True, True, True, False]


@pytest.mark.parametrize("other", [key_of(1), key_of(0, epoch=6), key_of(0, is_probe=True)])
def test_log_is_found_only_with_its_partition_epoch_and_kind(other: object) -> None:
    index = LogIndex()

    assert index.find(key_of(0), 0, 0.0) is not index.find(other, 0, 0.0)  # type: ignore[arg-type]


def test_entries_are_dropped_a_second_after_they_arrived() -> None:
    cache = cache_of()
    positions = positions_of(cache)
    log = read(positions, 0)
    append(log, RECORDS, now_s=10.0)
    cache._index.filled(log)
    assert cache.oldest_s == 10.0

    cache.settle(10.0 + KEPT_S - 0.01)
    assert log.log.size_bytes
    deadline_s = cache.deadline_s(10.0 + KEPT_S - 0.01)
    assert deadline_s is not None
    assert deadline_s < 10.0 + 1.5 * KEPT_S
    cache.settle(deadline_s)

    assert not log.log.size_bytes
    assert cache.oldest_s is None


def test_log_without_readers_is_dropped_after_a_second() -> None:
    cache = cache_of()
    positions = positions_of(cache)
    log = read(positions, 0)
    positions.drop(log.key.partition, 10.0)

    cache.settle(10.9)
    assert list(cache._index) == [log]
    cache.settle(11.2)

    assert list(cache._index) == []


def test_old_entries_are_kept_only_for_a_client_fetch_that_is_to_deliver_them() -> None:
    cache = cache_of()
    waits_at_end, delivers = positions_of(cache), positions_of(cache)
    log = read(waits_at_end, 0)
    read(delivers, 0)
    append(log, RECORDS, now_s=10.0)
    waits_at_end.delivered(log.key.partition, 1)
    read(waits_at_end, 0, log.log.end)
    waits_at_end.wait()

    delivers.wait()
    log.trim_old(10.0 + KEPT_S + 0.1)
    assert log.log.size_bytes
    delivers.stop()
    log.trim_old(10.0 + KEPT_S + 0.1)

    assert not log.log.size_bytes


def test_log_that_reaches_another_is_continued_in_it() -> None:
    index = LogIndex()
    behind, ahead = index.find(key_of(0), 0, 0.0), index.find(key_of(0), 1, 0.0)
    assert ahead.log.append(1, memoryview(batch(1, b"x", b"x")))
    assert list(index.overtaken(ahead)) == []

    assert behind.log.append(0, memoryview(RECORDS))

    assert list(index.overtaken(behind)) == [behind]


def test_memory_that_is_needed_is_freed_of_all_entries() -> None:
    cache = cache_of()
    positions = positions_of(cache)
    log = read(positions, 0)
    append(log, RECORDS, now_s=10.0)
    cache._index.filled(log)

    cache.drop_records()

    assert cache.oldest_s is None
    assert list(positions.loose) == [log.key.partition]


def test_route_of_a_partition_is_kept_while_another_client_reads_it() -> None:
    cache = cache_of()
    one, other = positions_of(cache), positions_of(cache)
    log = read(one, 0)
    read(other, 0)
    routes, key = cache.routes(BrokerId(1)), log.key.partition
    routes.avoid_followers(key, 10.0)

    one.drop(key, 10.0)
    cache.forget(BrokerId(1), key)
    assert routes.choose_source(key, "rack", cache.topology, 10.0) == routes.rackless
    other.drop(key, 10.0)
    cache.forget(BrokerId(1), key)

    assert routes.choose_source(key, "rack", cache.topology, 10.0) == routes.home
