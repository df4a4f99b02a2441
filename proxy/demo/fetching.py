"""The implementation of Fetch, v4 to v18, in a broker of the embedded cluster.

A fetch reads its partitions at once; if they yield less than its min bytes, it waits, and reads them again when one
of them changes or its max wait is over. Errors, diverging epochs, closer replicas and an empty list of partitions
are answered without a wait.

============  ==========================================================================================
v4            isolation level (every record is stable here, so the last stable offset is the high watermark)
v5            log start offset
v7            sessions (KIP-227)
v9            leader epochs fence: 74, 75
v11           rack; consumers may read from a follower, and the leader names one (KIP-392)
v12           last fetched epoch, diverging epoch
v13           topic ids: 100, 103
v16           the current leader and its address with 6 and 74
============  ==========================================================================================
"""

from collections.abc import Collection, Mapping
from typing import Any, Final
from uuid import UUID

import attrs
import trio

from proxy.demo.log import PartitionLog
from proxy.demo.messages import ReceivedRequest
from proxy.demo.state import ClusterState, EmbeddedPartition
from proxy.errors import ErrorCode
from proxy.session.downstream import (
    FetchContext,
    FetchSessionCache,
    Key,
    PlainPartitionState,
    SessionPartition,
    SessionRequest,
    SessionResponse,
)
from proxy.session.epochs import SessionId

__all__ = ["FetchHandler", "PartitionRead"]

_FETCH_MAX_BYTES: Final = 55 * 1024 * 1024  # the default of Kafka's fetch.max.bytes
_BY_RACK: Final = 11
_BY_ID: Final = 13
_LEADER_IN_RESPONSE: Final = 16


@attrs.frozen
class PartitionRead(PlainPartitionState):
    """The result of reading a partition for a fetch: records, an error, a diverging epoch or a replica to read."""

    records: bytes = b""
    diverging_epoch: int = -1
    diverging_end: int = -1
    leader: EmbeddedPartition | None = None
    """The partition whose leader and leader epoch the response names, with the errors 6 and 74; else None."""


def _failed(error: ErrorCode, leader: EmbeddedPartition | None = None) -> PartitionRead:
    return PartitionRead(high_watermark=-1, log_start=-1, error=error, leader=leader)


@attrs.frozen(eq=False)
class _Parked:
    """A fetch that waits for more records; ``changed`` is set when one of its partitions must be read again."""

    context: FetchContext
    changed: trio.Event = attrs.field(factory=trio.Event)


class FetchHandler:
    """The handler of fetch requests at one embedded broker, with its fetch sessions and the fetches that wait."""

    def __init__(self, node: int, state: ClusterState, sessions: FetchSessionCache) -> None:
        self.node = node
        self.state = state
        self.sessions = sessions
        self._parked: set[_Parked] = set()
        self._idle: dict[tuple[int, int], PartitionRead] = {}

    def wake(self, partition: EmbeddedPartition) -> None:
        """Make the waiting fetches that contain *partition* read their partitions again.

        Called after the partition got records, another leader or another log start, and after its topic was
        deleted.
        """
        by_name: Key = (partition.topic, partition.index)
        by_id: Key = (partition.topic_id, partition.index)
        for parked in self._parked:
            if by_name in parked.context or by_id in parked.context:
                parked.changed.set()

    async def fetch(self, request: ReceivedRequest) -> dict[str, Any]:
        """Return the fields of the response to a Fetch request, in a session if the request has one (KIP-227).

        While there are fewer than the request's min bytes of records, wait for at most its max wait. An error, a
        diverging epoch or a closer replica is answered at once.
        """
        body, version = request.body, request.version
        context = self.sessions.open(_session_request(body, version), trio.current_time())
        if context.error:
            return _response(context.answer({}, trio.current_time()), {}, [])
        results = self._read(context, body, version)
        wait_s = body.max_wait.total_seconds()
        if not _is_complete(results, body.min_bytes) and wait_s > 0:
            results = await self._park(context, body, version, wait_s)
        if version < _LEADER_IN_RESPONSE:
            results = {key: attrs.evolve(r, leader=None) if r.leader else r for key, r in results.items()}
        answer = context.answer(results, trio.current_time())
        return _response(answer, results, self._endpoints(results.values()))

    async def _park(
        self, context: FetchContext, body: Any, version: int, wait_s: float
    ) -> dict[Key, PartitionRead]:
        results: dict[Key, PartitionRead] | None = None
        with trio.move_on_after(wait_s):
            while results is None or not _is_complete(results, body.min_bytes):
                parked = _Parked(context)
                self._parked.add(parked)
                try:
                    await parked.changed.wait()
                finally:
                    self._parked.discard(parked)
                results = self._read(context, body, version)
        return self._read(context, body, version) if results is None else results

    def _read(self, context: FetchContext, body: Any, version: int) -> dict[Key, PartitionRead]:
        """Read the partitions in the session's order, within the request's limits."""
        results: dict[Key, PartitionRead] = {}
        failures: dict[Key, PartitionRead] = {}
        room = min(body.max_bytes, _FETCH_MAX_BYTES)
        nothing_yet = True
        for key, ask in context.partitions():
            found = self._locate(key, context.topic_names)
            if not isinstance(found, EmbeddedPartition):
                failures[key] = _failed(found)
                continue
            partition = found
            refusal = self._refusal(partition, key, ask, version)
            if refusal is not None:
                results[key] = refusal
                continue
            log = partition.log
            closest = self._choose_replica(partition, ask, body, version)
            if closest != self.node:
                results[key] = PartitionRead(log.end, log.start, preferred_replica=closest)
                continue
            refusal = self._unreadable(log, ask)
            if refusal is not None:
                results[key] = refusal
                continue
            if ask.offset == log.end:
                results[key] = self._empty_read(log.end, log.start)
                continue
            records = log.read(ask.offset, min(ask.max_bytes, room), at_least_one=nothing_yet)
            if records:
                nothing_yet = False
                room = max(0, room - len(records))
            results[key] = PartitionRead(log.end, log.start, has_records=bool(records), records=records)
        return results | failures  # Kafka, too, reports partitions that it could not find after the rest

    def _choose_replica(self, partition: EmbeddedPartition, ask: SessionPartition, body: Any, version: int) -> int:
        """Return the node id of the replica to read: this broker, or another that the client should read (KIP-392).

        Only the leader names another replica, and only if the log has the requested offset.
        """
        is_there = partition.log.start <= ask.offset <= partition.log.end
        if version < _BY_RACK or self.node != partition.leader or not is_there:
            return self.node
        return self.state.closest(partition, body.rack_id or "")

    def _empty_read(self, end: int, start: int) -> PartitionRead:
        """Return the result for a partition without news; the same object for the same offsets, to save memory."""
        reading = self._idle.get((end, start))
        if reading is None:
            if len(self._idle) > 10_000:
                self._idle.clear()
            reading = self._idle[(end, start)] = PartitionRead(end, start)
        return reading

    def _locate(self, key: Key, names: dict[UUID, str]) -> EmbeddedPartition | ErrorCode:
        topic, index = key
        if isinstance(topic, UUID):
            name = names.get(topic) or self.state.names.get(topic)
            if name is None:
                return ErrorCode.unknown_topic_id
            names[topic] = name  # a session remembers the topic of the id, and then a re-created topic is error 103
        else:
            name = topic
        return self.state.partition(name, index) or ErrorCode.unknown_topic_or_partition

    def _refusal(
        self, partition: EmbeddedPartition, key: Key, ask: SessionPartition, version: int
    ) -> PartitionRead | None:
        """Return the error for a wrong broker, topic id or leader epoch; None if the request has none of these."""
        if isinstance(key[0], UUID) and key[0] != partition.topic_id:
            return _failed(ErrorCode.inconsistent_topic_id)
        if self.node not in partition.replicas:
            return _failed(ErrorCode.not_leader_or_follower, partition)
        if 0 <= ask.leader_epoch < partition.leader_epoch:
            return _failed(ErrorCode.fenced_leader_epoch, partition)
        if ask.leader_epoch > partition.leader_epoch:
            return _failed(ErrorCode.unknown_leader_epoch)
        if self.node != partition.leader and version < _BY_RACK:
            return _failed(ErrorCode.not_leader_or_follower, partition)
        return None

    def _unreadable(self, log: PartitionLog, ask: SessionPartition) -> PartitionRead | None:
        """Return the error or the diverging epoch at the requested offset; None if it can be read, now or later."""
        if ask.last_fetched_epoch >= 0:
            ended = log.end_of_epoch(ask.last_fetched_epoch)
            if ended is None:
                return _failed(ErrorCode.offset_out_of_range)
            epoch, end = ended
            if epoch < ask.last_fetched_epoch or end < ask.offset:
                return PartitionRead(log.end, log.start, diverging=True, diverging_epoch=epoch, diverging_end=end)
        if not log.start <= ask.offset <= log.end:
            return _failed(ErrorCode.offset_out_of_range)
        return None

    def _endpoints(self, results: Collection[PartitionRead]) -> list[dict[str, Any]]:
        nodes = {reading.leader.leader for reading in results if reading.leader is not None}
        return [self.state.endpoint(node) for node in sorted(nodes & self.state.alive)]


def _is_complete(results: Mapping[Key, PartitionRead], min_bytes: int) -> bool:
    """Return whether *results* are answered without waiting: *min_bytes* of records, an error, or no partition."""
    size = 0
    for reading in results.values():
        if reading.has_records:
            size += len(reading.records)
        elif reading.error or reading.diverging or reading.preferred_replica >= 0:
            return True
    return size >= min_bytes or not results


def _session_request(body: Any, version: int) -> SessionRequest:
    by_id = version >= _BY_ID
    fenced, diverges = version >= 9, version >= 12
    asks: dict[Key, SessionPartition] = {}
    for topic in body.topics:
        name = (topic.topic_id or UUID(int=0)) if by_id else topic.topic
        for asked in topic.partitions:
            asks[(name, asked.partition)] = SessionPartition(
                asked.fetch_offset,
                asked.partition_max_bytes,
                asked.current_leader_epoch if fenced else -1,
                asked.last_fetched_epoch if diverges else -1,
            )
    if version < 7:
        return SessionRequest(SessionId(0), -1, asks)
    forget: list[Key] = [
        ((topic.topic_id or UUID(int=0)) if by_id else topic.topic, index)
        for topic in body.forgotten_topics_data
        for index in topic.partitions
    ]
    return SessionRequest(SessionId(body.session_id), body.session_epoch, asks, forget, by_id)


def _response(
    answer: SessionResponse, results: Mapping[Key, PartitionRead], endpoints: list[dict[str, Any]]
) -> dict[str, Any]:
    topics: list[dict[str, Any]] = []
    current: object = None
    for key in answer.keys:
        name, index = key
        if name != current:
            current = name
            topics.append({"topic_id" if isinstance(name, UUID) else "topic": name, "partitions": []})
        topics[-1]["partitions"].append(_partition(index, results[key]))
    return {
        "error_code": answer.error,
        "session_id": answer.session_id,
        "responses": topics,
        "node_endpoints": endpoints,
    }


def _partition(index: int, reading: PartitionRead) -> dict[str, Any]:
    said: dict[str, Any] = {
        "partition_index": index,
        "error_code": reading.error,
        "high_watermark": reading.high_watermark,
        "last_stable_offset": reading.high_watermark,
        "log_start_offset": reading.log_start,
        "aborted_transactions": None,
        "preferred_read_replica": reading.preferred_replica,
        "records": reading.records,
    }
    if reading.diverging:
        said["diverging_epoch"] = {"epoch": reading.diverging_epoch, "end_offset": reading.diverging_end}
    if reading.leader is not None:
        said["current_leader"] = {
            "leader_id": reading.leader.leader,
            "leader_epoch": reading.leader.leader_epoch,
        }
    return said
