"""The parts that all combinations of a run share: clusters, read-only topics, Sidefetch, client programs."""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from tests.differential.readers import Programs
from tests.differential.topics import Shape, Topic, fill
from tests.kafka.admin import Admin
from tests.kafka.cluster import KafkaCluster
from tests.kafka.guarded import GUARDED
from tests.sidefetch import Sidefetch
from tests.tap import Tap

__all__ = ["Side", "Stage"]

REFERENCE_KAFKA: Final = "3.9.2"
"""The last Kafka that serves all clients."""

_AWAY_S: Final = 0.005
"""The round trip to distant brokers: about the time that Sidefetch needs for a fetch on a busy machine."""
_SETTINGS: Final = {
    **GUARDED,
    "log.retention.check.interval.ms": 300,
    "log.initial.task.delay.ms": 300,
    "log.cleaner.backoff.ms": 500,
    "log.cleaner.dedupe.buffer.size": 8_388_608,
    "message.max.bytes": 2_000_000,
}


class Side:
    """One cluster with its operator and its topics."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.admin = Admin(cluster)
        self._topics: dict[str, Topic] = {}
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def topic(self, shape: Shape) -> Topic:
        """Return the topic of *shape*, which is filled when it is first asked for."""
        with self._locks[shape.name]:
            if shape.name not in self._topics:
                self._topics[shape.name] = fill(self.cluster, self.admin, shape, shape.name)
            return self._topics[shape.name]


class Stage:
    """Everything that runs during a run, started when it is first needed."""

    def __init__(self, kafka: str) -> None:
        self.kafka = kafka
        self.programs = Programs()
        self._stack = contextlib.ExitStack()
        self._lock = threading.Lock()
        self._sidefetches: dict[tuple[str, ...], Sidefetch] = {}
        self._reference: Side | None = None
        self._taps: dict[Side, Tap] = {}
        self._calm = threading.Condition()
        self._visitors = 0
        """-1 while somebody is alone."""
        self._want_alone = 0

    def __enter__(self) -> Self:
        self.main = Side(self._stack.enter_context(KafkaCluster(self.kafka, settings=_SETTINGS)))
        self._stack.enter_context(self.programs)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, where)

    def reference(self) -> Side:
        """Return a cluster that serves all clients, which is started when it is first asked for."""
        with self._lock:
            if self._reference is None:
                cluster = self._stack.enter_context(KafkaCluster(REFERENCE_KAFKA, settings=_SETTINGS))
                self._reference = Side(cluster)
            return self._reference

    def distant(self, side: Side) -> str:
        """Return the bootstrap of the brokers of *side* as they are from 5 ms away."""
        with self._lock:
            if side not in self._taps:
                tap = Tap(side.cluster.tapped, delay_s=_AWAY_S / 2)
                self._taps[side] = self._stack.enter_context(tap)
            return self._taps[side].bootstrap

    def sidefetch(self, options: tuple[str, ...]) -> Sidefetch:
        """Return the Sidefetch that runs with *options*; one that has ended is started anew."""
        with self._lock:
            if options not in self._sidefetches:
                self._sidefetches[options] = self._stack.enter_context(
                    Sidefetch(self.main.cluster.bootstrap, options=options)
                )
            elif self._sidefetches[options].process.exit_code is not None:
                self._sidefetches[options].start()
            return self._sidefetches[options]

    @contextlib.contextmanager
    def visiting(self, *, alone: bool = False) -> Iterator[None]:
        """Use the cluster, while in context: with others, or *alone* to disturb it."""
        with self._calm:
            if alone:
                self._want_alone += 1
                self._calm.wait_for(lambda: self._visitors == 0)
                self._want_alone -= 1
                self._visitors = -1
            else:
                self._calm.wait_for(lambda: self._visitors >= 0 and not self._want_alone)
                self._visitors += 1
        try:
            yield
        finally:
            with self._calm:
                self._visitors += 1 if alone else -1
                self._calm.notify_all()
