"""Records in transactions that overlap, of which many are aborted, known in advance."""

import itertools
import random
from collections.abc import Iterable
from typing import Final, Literal

import attrs
from confluent_kafka import KafkaError, Message, Producer

from tests.kafka.admin import unique
from tests.kafka.records import FIRST_TIMESTAMP_MS, Record

__all__ = ["Step", "Transactors", "committed_count", "planned"]

RECORDS: Final = 3
"""The records of each step in each of its partitions: a batch of some 750 bytes."""
_VALUE_BYTES: Final = 200


@attrs.frozen
class Step:
    """One action of a producer: a batch to each of some partitions, and perhaps the end of its transaction."""

    producer: int
    partitions: tuple[int, ...]
    end: Literal["commit", "abort"] | None


def planned(steps: int, partitions: int, *, producers: int = 3, seed: int = 7) -> list[Step]:
    """Return *steps* that leave no transaction open; the same for the same arguments."""
    dice = random.Random(seed)
    plan = [
        Step(
            dice.randrange(producers),
            tuple(sorted(dice.sample(range(partitions), dice.randint(1, partitions)))),
            dice.choice(("commit", "abort", None, None)),
        )
        for _ in range(steps - producers)
    ]
    return [*plan, *(Step(producer, tuple(range(partitions)), "commit") for producer in range(producers))]


def committed_count(plan: Iterable[Step]) -> int:
    """Return the number of records of *plan* that are committed in the end."""
    open_counts: dict[int, int] = {}
    committed = 0
    for step in plan:
        count = open_counts.pop(step.producer, 0) + RECORDS * len(step.partitions)
        if step.end is None:
            open_counts[step.producer] = count
        elif step.end == "commit":
            committed += count
    return committed


class Transactors:
    """Transactional producers that execute a plan; ``committed`` has the records of committed transactions."""

    def __init__(self, bootstrap: str, topic: str, producers: int = 3) -> None:
        self._topic = topic
        self._producers = [_producer(bootstrap) for _ in range(producers)]
        self._open: dict[int, list[Record]] = {}
        self._numbers = itertools.count()
        self.committed: list[Record] = []

    def carry_out(self, plan: Iterable[Step]) -> None:
        """Each step is acknowledged before the next begins; transactions may be left open.

        Raises: AssertionError, KafkaException: something was refused.
        """
        for step in plan:
            producer = self._producers[step.producer]
            if step.producer not in self._open:
                producer.begin_transaction()
            records = self._open.setdefault(step.producer, [])
            for partition in step.partitions * RECORDS:
                self._produce(producer, partition, records)
            assert producer.flush(30) == 0
            if step.end == "commit":
                producer.commit_transaction(30)
                self.committed += self._open.pop(step.producer)
            elif step.end == "abort":
                producer.abort_transaction(30)
                del self._open[step.producer]
        self.committed.sort(key=lambda record: (record.partition, record.offset))

    def _produce(self, producer: Producer, partition: int, records: list[Record]) -> None:
        number = next(self._numbers)
        key, value = b"key-%d" % number, (b"%d;" % number).ljust(_VALUE_BYTES, b".")
        timestamp_ms = FIRST_TIMESTAMP_MS + number

        def delivered(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            offset = message.offset()
            assert offset is not None
            records.append(Record(partition, offset, timestamp_ms, key, value))

        producer.produce(
            self._topic, partition=partition, key=key, value=value, timestamp=timestamp_ms, on_delivery=delivered
        )


def _producer(bootstrap: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": unique("transactor"),
            "linger.ms": 5,
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    return producer
