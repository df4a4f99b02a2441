"""The memory of a polling client, per partition that it fetches."""

import gc
import tracemalloc

from tests.relay.playbook import Play, topology

_PARTITIONS = 1_000
_MOST_BYTES = 1_200
"""A partition: log, offsets, and the entries in the dicts of reader, cache and session. All offsets here are
small, and those of real ones take another 32."""


def test_idle_partition_takes_little_memory_beside_another_client_of_the_same() -> None:
    known = topology(_PARTITIONS)
    idle(Play(known))
    tracemalloc.start()
    try:
        plays = [idle(Play(known)) for _ in range(2)]
        gc.collect()
        both, _ = tracemalloc.get_traced_memory()
        assert plays.pop()
        gc.collect()
        one, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert both - one < _MOST_BYTES * _PARTITIONS


def idle(play: Play) -> Play:
    play.established(*range(_PARTITIONS))
    play.forget()
    return play
