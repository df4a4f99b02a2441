"""Producers and readers during the faults: real clients, each a process of its own."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, Self

import attrs
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tests.clients.conversation import Client, ClientFailed
from tests.clients.talk import from_text, to_text
from tests.soak.judge import Judge, Reader

__all__ = ["PARTITIONS", "Workload"]

PARTITIONS: Final = 6

_OLD_READERS: Final = (("java-0.10.2.2", "read"),)
_READERS: Final = (("kafka-python", "read"), ("librdkafka", "read"))
_MEMBERS: Final = (("kafkajs", "group"), ("librdkafka", "group"))
"""Not those that join by versions before 4: when the connection breaks by which such a member joins, its
coordinator waits for it for five minutes (KIP-394), whether there is a Sidefetch or not."""
_OLD_PRODUCER: Final = "java-0.10.2.2"
_ENDLESS: Final = 10**9
"""More records than there will be."""
_TURN_S: Final = 0.02
_OLD_BATCH: Final = 24
"""Records that the old producer sends at once, and then waits for all."""
_OLD_PAUSE_S: Final = 0.5
_LARGE: Final = 40
"""Every so many-th record is of some KiB, so that answers are of many sizes."""
_UNCONNECTED_S: Final = 30.0
"""A program without a TCP connection for so long hangs by itself, and is started again. librdkafka 2.16 deadlocks
when a broker fails while an OffsetForLeaderEpoch request is in flight (confluentinc/librdkafka#5476)."""
_SAMPLE_S: Final = 1.0
_REST_S: Final = 1.0
"""Before a program that has failed is started anew."""


def _value(producer: str, partition: int, number: int) -> bytes:
    """Different for each record: whose it is, and its number among those of its producer in the partition."""
    name = b"%s/%d/%d;" % (producer.encode(), partition, number)
    return name * (4000 // len(name)) if number % _LARGE == 7 else name


@attrs.define(eq=False)
class _Reading:
    """One reader's program, and its state in the judge."""

    client: Client
    do: str
    more: dict[str, object]
    reader: Reader
    rests_until_s: float | None = None
    sampled_s: float = 0.0
    """The time of the last look at the program's connections."""
    connected_s: float = attrs.field(factory=time.monotonic)
    """The last time at which the program had a connection, or was started."""


class Workload:
    """Produces at *rate* records a second, and reads all of them with each client, while in context.

    Without *old* only by those that Kafka 4 serves.

    One producer is of today, idempotent, and goes to the brokers directly at *bootstrap*; one is old and goes
    through Sidefetch at *way*, as all readers do. A program that fails is started anew: real applications are, too.
    """

    def __init__(
        self, judge: Judge, topic: str, *, bootstrap: str, way: str, rate: float, old: bool = True
    ) -> None:
        self._judge = judge
        self._topic = topic
        self._bootstrap = bootstrap
        self._way = way
        self._rate = rate
        self._old = old
        self._lock = threading.Lock()
        self._stop_producing, self._stop_reading = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        self._running = contextlib.ExitStack()
        self._readings: list[_Reading] = []
        self.unknown = 0
        """Records without an acknowledgement or an error."""
        self.heard: Counter[str] = Counter()
        """By reader, how often its program failed and was restarted."""
        self.failures: list[str] = []
        """The errors of the failures."""
        self.broken: list[BaseException] = []
        """Exceptions that ended threads of the test."""

    def __enter__(self) -> Self:
        now_s = time.monotonic()
        for name, do in (*(_OLD_READERS if self._old else ()), *_READERS, *_MEMBERS):
            client = self._running.enter_context(Client(name))
            more: dict[str, object] = {"count": _ENDLESS, "wait_ms": 300}
            more |= {"partitions": list(range(PARTITIONS))} if do == "read" else {"group": f"{self._topic}-{name}"}
            reader = self._judge.reader(f"{name}, {do}", commits=do == "group", now_s=now_s)
            reading = _Reading(client, do, more, reader)
            self._begin(reading)
            self._readings.append(reading)
        for each in (self._read, self._produce, *([self._produce_as_of_old] if self._old else [])):
            thread = threading.Thread(target=self._guarded, args=(each,), name=each.__name__, daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._stop_producing.set()
        self._stop_reading.set()
        for thread in self._threads:
            thread.join(60)
        self._running.close()

    def stop_producing(self) -> None:
        """Return when all that was sent is acknowledged, or given up."""
        self._stop_producing.set()
        for thread in self._threads[1:]:
            thread.join(90)

    def ends(self) -> list[int]:
        """Return, by partition, the offset after the acknowledged records."""
        with self._lock:
            return self._judge.ends()

    def behind(self, ends: list[int]) -> list[str]:
        """The readers that have not read all before *ends*, and how far they are."""
        if self.broken:
            raise self.broken[0]
        with self._lock:
            return [f"{reader.name} ({reader.expected} of {ends})" for reader in self._judge.behind(ends)]

    @contextlib.contextmanager
    def judging(self) -> Iterator[Judge]:
        """The judge, for one thread at a time."""
        with self._lock:
            yield self._judge

    def _guarded(self, run: Any) -> None:
        try:
            run()
        except BaseException as wrong:
            self.broken.append(wrong)
            raise

    # ------------------------------------------------------------------------------------------------ readers

    def _begin(self, reading: _Reading) -> None:
        reading.client.begin(reading.do, self._way, self._topic, **reading.more)

    def _read(self) -> None:
        while not self._stop_reading.wait(_TURN_S):
            for reading in self._readings:
                self._hear(reading)
                self._check_connected(reading)
                if reading.rests_until_s is not None and time.monotonic() >= reading.rests_until_s:
                    reading.rests_until_s = None
                    reading.client.restart()
                    reading.connected_s = time.monotonic()
                    with self._lock:
                        self._judge.begin_anew(reading.reader, time.monotonic())
                    self._begin(reading)

    def _hear(self, reading: _Reading) -> None:
        """Take the messages of a program in their order: commits apply to later records."""
        judge, reader = self._judge, reading.reader
        while (answer := reading.client.next_answer(0)) is not None:
            with self._lock:
                match answer:
                    case {"record": [partition, offset, _, _, value, _]}:
                        judge.is_read(reader, partition, offset, from_text(value) or b"", time.monotonic())
                    case {"committed": offsets}:
                        for partition, offset in offsets.items():
                            judge.is_committed(reader, int(partition), offset)
                    case {"heard": _}:
                        pass  # it says that it overcomes it
                    case _:  # a running command, which may still report records and commits
                        self._failed(reading, str(answer))
        if reading.client.has_ended:
            self._failed(reading, reading.client.fate()[-500:])

    def _check_connected(self, reading: _Reading) -> None:
        """Count a program that has had no connection for _UNCONNECTED_S as failed."""
        now_s = time.monotonic()
        if now_s - reading.sampled_s < _SAMPLE_S:
            return
        reading.sampled_s = now_s
        if reading.client.has_connection:
            reading.connected_s = now_s
        elif now_s - reading.connected_s > _UNCONNECTED_S:
            self._failed(reading, f"no TCP connection for {_UNCONNECTED_S:g} s: the client hangs")

    def _failed(self, reading: _Reading, why: str) -> None:
        if reading.rests_until_s is not None:
            return
        self.heard[reading.reader.name] += 1
        self.failures.append(f"{reading.reader.name}: {why}")
        reading.rests_until_s = time.monotonic() + _REST_S

    # ---------------------------------------------------------------------------------------------- producers

    def _produce(self) -> None:
        producer, numbers, due = self._producer(), [0] * PARTITIONS, 0.0
        while not self._stop_producing.wait(_TURN_S):
            due += self._rate * _TURN_S
            while due >= 1:
                due -= 1
                partition = sum(numbers) % PARTITIONS
                value = _value("new", partition, numbers[partition])
                numbers[partition] += 1
                try:
                    producer.produce(
                        self._topic,
                        partition=partition,
                        value=value,
                        on_delivery=self._on_delivery(partition, value),
                    )
                except (BufferError, KafkaException):
                    self._given_up(1)
            producer.poll(0)
        self._given_up(producer.flush(60))

    def _producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 10,
                "message.timeout.ms": 60_000,
                "socket.timeout.ms": 10_000,
                "log_level": 0,
            }
        )

    def _on_delivery(self, partition: int, value: bytes) -> Any:
        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is not None or offset is None:
                self._given_up(1)
                return
            with self._lock:
                self._judge.is_acknowledged(partition, offset, value, time.monotonic())

        return delivered

    def _given_up(self, count: int) -> None:
        with self._lock:
            self.unknown += count

    def _produce_as_of_old(self) -> None:
        numbers = [0] * PARTITIONS
        with Client(_OLD_PRODUCER) as client:
            while not self._stop_producing.wait(_OLD_PAUSE_S):
                reported: list[list[object]] = []
                values: list[tuple[int, bytes]] = []
                for each in range(_OLD_BATCH):
                    partition = each % PARTITIONS
                    values.append((partition, _value("old", partition, numbers[partition])))
                    numbers[partition] += 1
                    reported.append([partition, 0, int(time.time() * 1000), None, to_text(values[-1][1]), []])
                task = client.begin("produce", self._way, self._topic, records=reported)
                try:
                    task.wait(60)
                except ClientFailed:
                    self._given_up(_OLD_BATCH)
                    client.restart()
                    continue
                with self._lock:
                    for (partition, value), (_, offset) in zip(values, task.result, strict=True):
                        self._judge.is_acknowledged(partition, offset, value, time.monotonic())
