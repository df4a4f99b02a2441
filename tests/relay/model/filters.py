"""The filters of aborted records in Java's consumer and in librdkafka, for a read_committed application.

Both walk the batches of one partition of one response with its list of aborted transactions. A list that lacks an
entry makes them deliver aborted records; one with a wrong entry makes them drop committed ones.
Source: Kafka's ``CompletedFetch``; librdkafka's ``rd_kafka_msgset_reader`` and ``rd_kafka_aborted_txns``.
"""

import heapq
from collections.abc import Iterable, Sequence

from tests.relay.model.logs import Stored

__all__ = ["java", "librdkafka"]

Aborted = Iterable[tuple[int, int]]
"""(producer, first offset)."""


def java(batches: Sequence[Stored], aborted: Aborted) -> list[Stored]:
    """Transactions begin to count as aborted at their first offset, and end with any abort marker of theirs."""
    waiting = [(first, producer) for producer, first in aborted]
    heapq.heapify(waiting)
    aborting: set[int] = set()
    delivered = []
    for batch in batches:
        if batch.producer >= 0:
            while waiting and waiting[0][0] <= batch.last:
                aborting.add(heapq.heappop(waiting)[1])
            if batch.kind == "abort":
                aborting.discard(batch.producer)
            elif batch.kind == "transactional" and batch.producer in aborting:
                continue
        if batch.kind not in ("commit", "abort"):
            delivered.append(batch)
    return delivered


def librdkafka(batches: Sequence[Stored], aborted: Aborted) -> list[Stored]:
    """Each producer has a queue of first offsets; an abort marker takes one off."""
    firsts: dict[int, list[int]] = {}
    for producer, first in aborted:
        firsts.setdefault(producer, []).append(first)
    for queue in firsts.values():
        queue.sort()
    delivered = []
    for batch in batches:
        queue = firsts.get(batch.producer, [])
        if batch.kind == "abort":
            if queue and queue[0] <= batch.base:
                del queue[0]
        elif batch.kind != "commit" and not (batch.kind == "transactional" and queue and batch.base >= queue[0]):
            delivered.append(batch)
    return delivered
