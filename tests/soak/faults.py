"""Faults: each kind is a function that causes it, lets it last, and ends it."""

import random
import signal
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

import attrs
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from tests.kafka.admin import Admin
from tests.kafka.ask import ask
from tests.kafka.cluster import KafkaCluster
from tests.sidefetch import Sidefetch
from tests.soak.wallclock import WallClock
from tests.soak.wire import Weather, Wire

__all__ = ["FAULTS", "ONCE_IN_A_WHILE", "Fault", "Stage", "brokers_restarted"]

_SLOTS: Final = 24
"""Sessions that strangers take of a broker: more than it has."""
_DAY_S: Final = 86_400


@attrs.frozen
class Stage:
    """The targets of faults."""

    cluster: KafkaCluster
    operator: Admin
    topic: str
    wire: Wire
    sidefetch: Sidefetch
    clock: WallClock
    random: random.Random

    def some_broker(self) -> int:
        return self.random.choice(sorted(self.cluster.brokers))

    def wait_whole(self) -> None:
        """Return when every replica is in sync: another broker may go then, and nothing is lost in Kafka."""
        for topic in (self.topic, "__consumer_offsets"):
            self.operator.wait_in_sync(topic, timeout_s=120)


Fault = Callable[[Stage, float], None]
"""Given how many seconds it is to last."""


def broker_killed(stage: Stage, for_s: float) -> None:
    """Kill a broker as a crash does, and start it again."""
    node = stage.some_broker()
    stage.cluster.kill(node)
    time.sleep(for_s)
    stage.cluster.restart(node)
    stage.wait_whole()


def broker_stalled(stage: Stage, for_s: float) -> None:
    """It does nothing, its connections up; for more than 4 s, and the others think that it has gone."""
    with stage.cluster.stalled(stage.some_broker()):
        time.sleep(for_s)
    stage.wait_whole()


def brokers_restarted(stage: Stage, for_s: float) -> None:
    """One after the other in good order, as for an upgrade."""
    for node in sorted(stage.cluster.brokers):
        stage.cluster.stop(node)
        time.sleep(for_s / 6)
        stage.cluster.restart(node)
        stage.wait_whole()
    stage.operator.restore_leaders()


def leaders_moved(stage: Stage, for_s: float) -> None:
    """Move the leaders of all partitions, one by one."""
    for partition, leader in stage.operator.leaders(stage.topic).items():
        elsewhere = [node for node in sorted(stage.cluster.brokers) if node != leader]
        stage.operator.move_leader(stage.topic, partition, stage.random.choice(elsewhere))
        time.sleep(for_s / 12)


def connections_reset(stage: Stage, for_s: float) -> None:
    """All of them between Sidefetch and brokers, a few times."""
    for _ in range(4):
        stage.wire.reset()
        time.sleep(for_s / 4)


def connections_half_open(stage: Stage, for_s: float) -> None:
    """Make existing connections lose all data without an error; new ones work."""
    with stage.wire.deaf():
        time.sleep(for_s)


def latency(stage: Stage, for_s: float) -> None:
    """Add the latency of a link around the world."""
    with stage.wire.weather(Weather(latency_s=stage.random.uniform(0.02, 0.2))):
        time.sleep(for_s)


def bandwidth_capped(stage: Stage, for_s: float) -> None:
    """That of a link that is full; of each connection."""
    with stage.wire.weather(Weather(bytes_per_s=stage.random.uniform(64, 512) * 1024)):
        time.sleep(for_s)


def streams_cut(stage: Stage, for_s: float) -> None:
    """Connections that are reset after some bytes, mostly within a frame, again and again."""
    with stage.wire.weather(Weather(cut_after_bytes=stage.random.choice([2_000, 20_000, 100_000]))):
        time.sleep(for_s)


def streams_stalled(stage: Stage, for_s: float) -> None:
    """Nothing passes to and from brokers, then all of it does."""
    with stage.wire.weather(Weather(is_stalled=True)):
        time.sleep(for_s)


def sessions_evicted(stage: Stage, for_s: float) -> None:
    """Evict sessions by fetches that claim to be followers': those may take any client's slot."""
    taken = {
        node: [_stranger(broker.address, 0, 0) for _ in range(_SLOTS)]
        for node, broker in stage.cluster.brokers.items()
    }
    time.sleep(for_s)
    for node, session_ids in taken.items():
        for session_id in filter(None, session_ids):
            _stranger(stage.cluster.brokers[node].address, session_id, -1)


def _stranger(address: str, session_id: int, epoch: int) -> int:
    """Ask for a session, or close one: a fetch of a replica, for a topic that there is none of."""
    partition = FetchPartition(partition=i32(0), fetch_offset=i64(0), partition_max_bytes=i32(1))
    topics = (FetchTopic(topic=TopicName("not-there"), partitions=(partition,)),) if epoch == 0 else ()
    request = FetchRequest(
        replica_id=BrokerId(1),
        max_wait=i32Timedelta.parse(timedelta(0)),
        min_bytes=i32(0),
        isolation_level=i8(0),
        session_id=i32(session_id),
        session_epoch=i32(epoch),
        topics=topics,
        forgotten_topics_data=tuple[ForgottenTopic, ...](),
    )
    return int(ask(address, request).session_id)


def sidecar_killed(stage: Stage, for_s: float) -> None:
    """Kill Sidefetch as a crash or the kernel's OOM killer does, and start it again."""
    stage.sidefetch.kill()
    time.sleep(min(for_s, 2.0))
    stage.sidefetch.start()


def sidecar_replaced(stage: Stage, for_s: float) -> None:
    """Stop Sidefetch as for an upgrade; its clients stay until it has ended."""
    stage.sidefetch.process.stop(30)
    time.sleep(min(for_s, 2.0))
    stage.sidefetch.start()


def sidecar_paused(stage: Stage, for_s: float) -> None:
    """Pause Sidefetch like a process that gets no CPU time."""
    process = stage.sidefetch.process
    process.send(signal.SIGSTOP)
    time.sleep(for_s)
    process.send(signal.SIGCONT)


def clock_jumped(stage: Stage, for_s: float) -> None:
    """Sidefetch's wall clock: a day ahead, a day behind, right again."""
    for offset_s in (_DAY_S, -_DAY_S, 0):
        stage.clock.jump(offset_s)
        time.sleep(for_s / 3)


FAULTS: Final[Mapping[str, Fault]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        broker_killed,
        broker_stalled,
        brokers_restarted,
        leaders_moved,
        connections_reset,
        connections_half_open,
        latency,
        bandwidth_capped,
        streams_cut,
        streams_stalled,
        sessions_evicted,
        sidecar_paused,
        clock_jumped,
        sidecar_killed,
        sidecar_replaced,
    )
}

ONCE_IN_A_WHILE: Final = ("sidecar-killed", "sidecar-replaced")
"""Faults that restart Sidefetch: a leak needs time to show."""
