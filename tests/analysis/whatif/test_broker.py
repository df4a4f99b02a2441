"""A broker's cache, by hand."""

from proxy.analysis.whatif.broker import SessionCacheModel
from proxy.session.slots import EVICTION_S


def test_new_sessions_are_distributed_round_robin_over_shards() -> None:
    broker = SessionCacheModel(16)

    ids = [broker.create(1, 0.0) for _ in range(16)]

    assert [broker.shard_of(session_id) for session_id in ids] == [*range(8), *range(8)]
    assert len(set(ids)) == len(broker) == broker.peak_sessions == 16
    assert broker.create(1, 0.0) == 0
    assert (broker.refusals, broker.evictions) == (1, 0)


def test_a_shard_is_full_though_others_have_room() -> None:
    broker = SessionCacheModel(16)
    ids = [broker.create(1, 0.0) for _ in range(16)]
    broker.close(ids[1])

    assert broker.create(1, 0.0) == 0
    assert broker.create(1, 0.0) > 0


def test_few_slots_are_none() -> None:
    broker = SessionCacheModel(7)

    assert broker.create(1, 0.0) == 0
    assert SessionCacheModel(7, shards=1).create(1, 0.0) > 0


def test_a_session_that_a_real_broker_has_granted_goes_where_its_id_says() -> None:
    broker = SessionCacheModel(8)

    granted = 5 * ((2**31 - 1) // 8) + 7
    assert broker.create(3, 0.0, granted=granted) == granted
    assert broker.shard_of(granted) == 5
    assert broker.shard_of(broker.create(3, 0.0)) == 6


def test_partitions_are_those_of_all_sessions_as_they_are_used() -> None:
    evicted: list[int] = []
    broker = SessionCacheModel(2, shards=1, on_eviction=evicted.append)
    first, second = broker.create(5, 0.0), broker.create(7, 0.0)
    assert broker.use(first, 50, 1.0)
    assert (broker.partitions, broker.peak_partitions) == (57, 12)
    assert broker.close(second)
    assert not broker.close(second)
    broker.create(1, EVICTION_S)
    broker.create(1, EVICTION_S + 2)

    assert evicted == [first]
    assert broker.partitions == 2
    assert not broker.use(first, 1, EVICTION_S + 2)
