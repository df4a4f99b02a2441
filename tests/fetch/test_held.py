"""Held records that fit into a response."""

from proxy.cluster.routing import Source
from proxy.cluster.topology import BrokerId
from proxy.fetch.held import Held
from proxy.wire.fetch import FetchPartition, PartitionKey, PartitionReply
from tests.old_clients import batch

LARGE, SMALL = batch(0, b"x" * 1000), batch(0, b"x")


def ready(*sizes: int, max_bytes: int, is_cut: bool = False) -> tuple[list[int], bool]:
    """Return the partitions that fit, and whether all do; *sizes* are their limits; two batches are large."""
    held = Held()
    asks = {PartitionKey("t", n): FetchPartition(0, size) for n, size in enumerate(sizes)}
    for n, (key, ask) in enumerate(asks.items()):
        held.keep(key, ask, PartitionReply(n, 0, 1, records=LARGE if n < 2 else SMALL), Source(BrokerId(1)), 0.0)
    found = held.ready(asks, lambda _, ask: ask.max_bytes, max_bytes, is_cut=is_cut)
    return [key.partition for key, _ in found.replies], found.is_all


def test_first_batch_larger_than_a_limit_is_delivered_alone() -> None:
    assert ready(10, 5000, 5000, max_bytes=50_000) == ([0], False)
    assert ready(5000, 5000, max_bytes=10) == ([0], False)


def test_later_batch_larger_than_a_limit_waits_for_its_turn() -> None:
    assert ready(5000, 10, 5000, max_bytes=50_000) == ([0, 2], False)
    assert ready(5000, 5000, 5000, max_bytes=len(LARGE) + len(SMALL)) == ([0, 2], False)


def test_batches_that_are_cut_later_are_delivered_beside_each_other() -> None:
    assert ready(10, 10, 5000, max_bytes=50_000, is_cut=True) == ([0, 1, 2], True)
