"""Events that happen to a topic while it is read, and their consequences for the readers."""

import time
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from tests.differential.combinations import EventName
from tests.differential.stage import Stage
from tests.differential.topics import Ends, Shape, Topic, Writer, fill, last_offsets, rows
from tests.differential.verdict import Expectation, Recreated, Revoked, Trimmed
from tests.kafka.admin import eventually
from tests.kafka.records import FIRST_TIMESTAMP_MS

__all__ = ["Scene", "ends_after", "fire"]

_WRITTEN: Final = 200
"""Records that each of two producers adds to each partition."""
_DENIED_S: Final = 4.0


@attrs.frozen
class Scene:
    """The place of an event."""

    stage: Stage
    topic: Topic
    sidefetch: str
    """Its bootstrap address."""
    elapsed_ms: Callable[[], int]
    """Returns the time since the readers were started."""


def ends_after(event: EventName | None, topic: Topic) -> Mapping[int, Ends]:
    """Return the ends that the partitions have in the end."""
    match event:
        case "producers-write":
            more = 2 * _WRITTEN
        case "topic-recreated":
            last = last_offsets(topic.shape, 1)
            return {partition: attrs.evolve(ends, last=last[partition]) for partition, ends in topic.ends.items()}
        case _:
            more = 0
    return {partition: attrs.evolve(ends, last=ends.last + more) for partition, ends in topic.ends.items()}


def fire(event: EventName, scene: Scene) -> Expectation:
    """Cause *event*; return its consequences when it is over."""
    return _EVENTS[event](scene)


def _move_leaders(scene: Scene) -> None:
    admin, name = scene.stage.main.admin, scene.topic.name
    for partition, leader in admin.leaders(name).items():
        other = min(admin.in_sync(name)[partition] - {leader})
        admin.move_leader(name, partition, other)


def _restart_broker(scene: Scene) -> None:
    cluster = scene.stage.main.cluster
    leader = scene.stage.main.admin.leaders(scene.topic.name)[0]
    cluster.stop(leader)
    cluster.restart(leader)


def _reassign(scene: Scene) -> None:
    """Move every partition to the broker that has no replica of it."""
    admin, name = scene.stage.main.admin, scene.topic.name
    kept = {partition: sorted(nodes) for partition, nodes in admin.in_sync(name).items()}
    nodes = set(scene.stage.main.cluster.brokers)
    admin.reassign(name, [[*(nodes - {*kept[each]}), kept[each][0]] for each in sorted(kept)])


def _delete_records(scene: Scene) -> Trimmed:
    starts = {partition: ends.last * 6 // 10 for partition, ends in scene.topic.ends.items()}
    for partition, start in starts.items():
        scene.stage.main.admin.delete_records(scene.topic.name, partition, start)
    return Trimmed(starts, scene.elapsed_ms())


def _retain(scene: Scene) -> Trimmed:
    admin, name = scene.stage.main.admin, scene.topic.name
    leader = admin.leaders(name)[0]
    last = scene.topic.ends[0].last

    def start() -> int:
        return admin.log_at(name, 0, leader, last).start

    admin.configure_topic(name, {"retention.bytes": "1"})
    eventually(lambda: start() > 0, f"{name} trimmed")
    admin.configure_topic(name, {"retention.bytes": "-1"})
    at_ms = scene.elapsed_ms()
    time.sleep(1.0)
    return Trimmed({0: start()}, at_ms)


def _recreate(scene: Scene) -> Recreated:
    side, shape = scene.stage.main, scene.topic.shape
    side.admin.delete_topic(scene.topic.name)
    at_ms = scene.elapsed_ms()
    time.sleep(1.0)
    fill(side.cluster, side.admin, shape, scene.topic.name, generation=1)
    return Recreated(frozenset(rows(shape, 0) - rows(shape, 1)), at_ms)


def _revoke(scene: Scene) -> Revoked:
    with scene.stage.main.admin.reading_denied(scene.topic.name):
        at_ms = scene.elapsed_ms()
        time.sleep(_DENIED_S)
        restored_ms = scene.elapsed_ms()
    return Revoked(at_ms, restored_ms)


def _write(scene: Scene) -> None:
    shape: Shape = scene.topic.shape
    bootstraps = (scene.stage.main.cluster.bootstrap, scene.sidefetch)
    writers = [Writer(each, "none", shape.batch_bytes) for each in bootstraps]
    for number in range(_WRITTEN):
        for writer in writers:
            for partition in scene.topic.ends:
                writer.send(scene.topic.name, partition, b"more", b"%d" % number, FIRST_TIMESTAMP_MS)
            writer.producer.poll(0.005)
    for writer in writers:
        writer.flush()


_EVENTS: Final[Mapping[EventName, Callable[[Scene], Expectation]]] = {
    "leaders-move": _move_leaders,
    "broker-restarts": _restart_broker,
    "records-deleted": _delete_records,
    "retention": _retain,
    "topic-recreated": _recreate,
    "read-revoked": _revoke,
    "partition-reassigned": _reassign,
    "producers-write": _write,
}
