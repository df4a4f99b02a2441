"""The request handlers of a broker of the embedded cluster, except those for Fetch and for consumer groups."""

from collections.abc import Callable, Iterator
from typing import Any, Final
from uuid import UUID
from zlib import crc32

import attrs

from proxy.demo.batches import BadBatch, split_batches
from proxy.demo.messages import ReceivedRequest
from proxy.demo.state import NO_LEADER, ClusterState, EmbeddedPartition, EmbeddedTopic
from proxy.errors import ErrorCode

__all__ = ["CLUSTER_ID", "Handlers", "coordinator_of"]

CLUSTER_ID: Final = "sidefetch-embedded-0001"
_LATEST: Final = -1
_EARLIEST: Final = -2
_NEWEST: Final = -3  # the record with the largest timestamp
_EARLIEST_LOCAL: Final = -4


def coordinator_of(state: ClusterState, group: str) -> int:
    """Return the node id of the broker that coordinates consumer group *group*; ``NO_LEADER`` if no broker runs.

    It depends on the group's name and on the brokers that run.
    """
    alive = sorted(state.alive)
    return alive[crc32(group.encode()) % len(alive)] if alive else NO_LEADER


@attrs.define(eq=False)
class Handlers:
    """The request handlers of one broker, a method for each API; each returns the fields of the response's body.

    They are given the broker's node id, since only a partition's leader accepts records and returns offsets.
    """

    node: int
    state: ClusterState
    changed: Callable[[EmbeddedPartition], None]
    """Called with every partition that got records or another leader, or was deleted."""
    producer_ids: Iterator[int]

    def metadata(self, request: ReceivedRequest) -> dict[str, Any]:
        body, state = request.body, self.state
        if body.topics is None or (request.version == 0 and not body.topics):
            topics = [self._topic(topic, topic.name, topic.id) for topic in state.topics.values()]
        else:
            topics = []
            # As in Kafka: if any topic is requested by id, those requested by name are ignored.
            by_id = [asked for asked in body.topics if getattr(asked, "topic_id", None) is not None]
            for asked in by_id or body.topics:
                topic_id = getattr(asked, "topic_id", None)
                name = state.name_of(topic_id) if asked.name is None else asked.name
                topics.append(self._topic(state.topics.get(name or ""), name, topic_id))
        return {
            "brokers": [state.endpoint(node) for node in sorted(state.alive)],
            "cluster_id": CLUSTER_ID,
            "controller_id": state.controller,
            "topics": topics,
        }

    def _topic(self, topic: EmbeddedTopic | None, name: str | None, topic_id: UUID | None) -> dict[str, Any]:
        if topic is None:
            error = ErrorCode.unknown_topic_id if name is None else ErrorCode.unknown_topic_or_partition
            return {"error_code": error, "name": name, "topic_id": topic_id}
        return {
            "name": topic.name,
            "topic_id": topic.id,
            "partitions": [
                {
                    "error_code": ErrorCode.leader_not_available
                    if partition.leader == NO_LEADER
                    else ErrorCode.none,
                    "partition_index": partition.index,
                    "leader_id": partition.leader,
                    "leader_epoch": partition.leader_epoch,
                    "replica_nodes": partition.replicas,
                    "isr_nodes": self.state.in_sync(partition),
                    "offline_replicas": [n for n in partition.replicas if n not in self.state.alive],
                }
                for partition in topic.partitions
            ],
        }

    def describe_cluster(self, request: ReceivedRequest) -> dict[str, Any]:  # noqa: ARG002
        return {
            "cluster_id": CLUSTER_ID,
            "controller_id": self.state.controller,
            "brokers": [self.state.endpoint(node) for node in sorted(self.state.alive)],
        }

    def _find_led_partition(self, topic: str | None, index: int, epoch: int = -1) -> EmbeddedPartition | ErrorCode:
        """Return the partition if this broker leads it, in leader epoch *epoch* (-1: any); else the error code."""
        partition = None if topic is None else self.state.partition(topic, index)
        if partition is None:
            return ErrorCode.unknown_topic_or_partition
        if partition.leader != self.node:
            return ErrorCode.not_leader_or_follower
        if 0 <= epoch < partition.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.unknown_leader_epoch if epoch > partition.leader_epoch else partition

    def produce(self, request: ReceivedRequest) -> dict[str, Any]:
        topics = []
        moved: set[int] = set()
        for topic in request.body.topic_data:
            topic_id = getattr(topic, "topic_id", None)
            name = topic.name if request.version < 13 else self.state.name_of(topic_id)
            partitions = []
            for data in topic.partition_data:
                found: EmbeddedPartition | ErrorCode = (
                    ErrorCode.unknown_topic_id if name is None else self._find_led_partition(name, data.index)
                )
                said = self._append(found, request.body.acks, data.records or b"")
                if found == ErrorCode.not_leader_or_follower:
                    partition = self.state.partition(name or "", data.index)
                    assert partition is not None
                    moved.add(partition.leader)
                    said["current_leader"] = {
                        "leader_id": partition.leader,
                        "leader_epoch": partition.leader_epoch,
                    }
                partitions.append({"index": data.index, **said})
            topics.append({"name": name, "topic_id": topic_id, "partition_responses": partitions})
        endpoints = [self.state.endpoint(node) for node in sorted(moved & self.state.alive)]
        return {"responses": topics, "node_endpoints": endpoints}

    def _append(self, found: EmbeddedPartition | ErrorCode, acks: int, records: bytes) -> dict[str, Any]:
        if acks not in (-1, 0, 1):
            found = ErrorCode.invalid_required_acks
        if not isinstance(found, EmbeddedPartition):
            return {"error_code": found, "base_offset": -1, "log_start_offset": -1}
        try:
            batches = list(split_batches(records))
        except BadBatch:
            return {"error_code": ErrorCode.corrupt_message, "base_offset": -1, "log_start_offset": -1}
        if len(batches) != 1:
            return {"error_code": ErrorCode.invalid_record, "base_offset": -1, "log_start_offset": -1}
        base_offset = found.log.append(batches[0], found.leader_epoch)
        self.changed(found)
        return {"base_offset": base_offset, "log_start_offset": found.log.start}

    def list_offsets(self, request: ReceivedRequest) -> dict[str, Any]:
        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [self._offset(topic.name, asked) for asked in topic.partitions],
                }
                for topic in request.body.topics
            ]
        }

    def _offset(self, topic: str, asked: Any) -> dict[str, Any]:
        index, wanted = asked.partition_index, asked.timestamp
        found = self._find_led_partition(topic, index, getattr(asked, "current_leader_epoch", -1))
        if not isinstance(found, EmbeddedPartition):
            return {"partition_index": index, "error_code": found, "offset": -1, "timestamp": -1}
        log = found.log
        if wanted == _LATEST:
            hit: tuple[int, int] | None = (log.end, -1)
        elif wanted in (_EARLIEST, _EARLIEST_LOCAL):
            hit = (log.start, -1)
        elif wanted == _NEWEST:
            hit = log.newest()
        else:
            hit = log.offset_at(wanted) if wanted >= 0 else None
        offset, timestamp = hit or (-1, -1)
        epoch = found.leader_epoch if hit else -1
        return {"partition_index": index, "offset": offset, "timestamp": timestamp, "leader_epoch": epoch}

    def offset_for_leader_epoch(self, request: ReceivedRequest) -> dict[str, Any]:
        return {
            "topics": [
                {
                    "topic": topic.topic,
                    "partitions": [self._epoch_end(topic.topic, asked) for asked in topic.partitions],
                }
                for topic in request.body.topics
            ]
        }

    def _epoch_end(self, topic: str, asked: Any) -> dict[str, Any]:
        found = self._find_led_partition(topic, asked.partition, asked.current_leader_epoch)
        if not isinstance(found, EmbeddedPartition):
            return {"partition": asked.partition, "error_code": found}
        if asked.leader_epoch == found.leader_epoch:
            ended: tuple[int, int] | None = (found.leader_epoch, found.log.end)
        else:
            ended = found.log.end_of_epoch(asked.leader_epoch)
        epoch, end = ended or (-1, -1)
        return {"partition": asked.partition, "leader_epoch": epoch, "end_offset": end}

    def find_coordinator(self, request: ReceivedRequest) -> dict[str, Any]:
        if request.version >= 4:
            return {"coordinators": [self._coordinator(key) for key in request.body.coordinator_keys]}
        return self._coordinator(request.body.key)

    def _coordinator(self, group: str) -> dict[str, Any]:
        return {"key": group, **self.state.endpoint(coordinator_of(self.state, group))}

    def init_producer_id(self, request: ReceivedRequest) -> dict[str, Any]:
        if request.body.transactional_id is not None:
            return {
                "error_code": ErrorCode.transactional_id_authorization_failed,
                "producer_id": -1,
                "producer_epoch": -1,
            }
        return {"producer_id": next(self.producer_ids), "producer_epoch": 0}

    def create_topics(self, request: ReceivedRequest) -> dict[str, Any]:
        return {"topics": [self._create(topic, request.body.validate_only) for topic in request.body.topics]}

    def _create(self, asked: Any, validate_only: bool) -> dict[str, Any]:
        state, name = self.state, asked.name
        partitions = asked.num_partitions if asked.num_partitions > 0 else 1
        replication = asked.replication_factor if asked.replication_factor > 0 else 1
        error = ErrorCode.none
        if name in state.topics:
            error = ErrorCode.topic_already_exists
        elif not name or "/" in name or len(name) > 249:
            error = ErrorCode.invalid_topic_exception
        elif replication > len(state.racks):
            error = ErrorCode.invalid_replication_factor
        said = {"name": name, "error_code": error, "error_message": None, "configs": ()}
        if error:
            return {**said, "num_partitions": -1, "replication_factor": -1}
        if asked.assignments:
            ordered = sorted(asked.assignments, key=lambda assignment: assignment.partition_index)
            assignment = [tuple(each.broker_ids) for each in ordered]
        else:
            assignment = state.assign_replicas(partitions, replication)
        topic_id = None if validate_only else state.create(name, assignment).id
        return {
            **said,
            "topic_id": topic_id,
            "num_partitions": len(assignment),
            "replication_factor": len(assignment[0]),
        }

    def delete_topics(self, request: ReceivedRequest) -> dict[str, Any]:
        if request.version >= 6:
            asked = [(topic.name, topic.topic_id) for topic in request.body.topics]
        else:
            asked = [(name, None) for name in request.body.topic_names]
        return {"responses": [self._delete(name, topic_id) for name, topic_id in asked]}

    def _delete(self, name: str | None, topic_id: UUID | None) -> dict[str, Any]:
        if name is None and topic_id is not None:
            name = self.state.names.get(topic_id)
        if name not in self.state.topics:
            unknown = ErrorCode.unknown_topic_id if name is None else ErrorCode.unknown_topic_or_partition
            return {"name": name, "topic_id": topic_id, "error_code": unknown}
        topic = self.state.delete(name)
        for partition in topic.partitions:
            self.changed(partition)
        return {"name": name, "topic_id": topic.id}
