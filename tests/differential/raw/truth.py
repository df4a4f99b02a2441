"""The leader's own state: topics, copies of logs, and the twins of fetches, by one direct connection."""

import time
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs

from tests.differential.raw.connection import Connection
from tests.differential.raw.judge import Answer, Key, Part, Partition, Query
from tests.differential.raw.log import Log, build_batch
from tests.differential.raw.messages import Apis, Values

__all__ = ["Topic", "Truth", "fetch_values", "produce_values", "read_answer"]

_VERSION: Final = 12
_WITH_IDS: Final = 13
_OUT_OF_RANGE: Final = 1
FIRST_FREE_LIMIT: Final = (1 << 31) - 1


@attrs.define
class Topic:
    """A topic as it is now."""

    name: str
    topic_id: uuid.UUID
    partitions: int
    epochs: dict[int, int]
    """Leader epochs by partition."""
    logs: dict[int, Log] = attrs.field(factory=dict)
    predecessor: uuid.UUID | None = None
    changed_s: dict[int, float] = attrs.field(factory=dict)
    """By partition, the time when it last lost records or its leader, or the topic was created again."""
    produced_s: dict[int, float] = attrs.field(factory=dict)
    """By partition, the time when records were last appended."""

    def log(self, partition: int) -> Log:
        return self.logs.setdefault(partition, Log())


def fetch_values(
    query: Query,
    named: Sequence[Partition],
    *,
    session: tuple[int, int] = (0, -1),
    forgotten: Iterable[Key] = (),
    replica_id: int = -1,
    empty_topic: str | None = None,
) -> Values:
    """Return the body of a fetch. Neighbours of one topic share an entry."""
    topic_name = "topic_id" if query.version >= _WITH_IDS else "topic"
    topics: list[Values] = []
    for each in named:
        entry = {
            "partition": each.key[1],
            "current_leader_epoch": each.leader_epoch,
            "fetch_offset": each.offset,
            "last_fetched_epoch": each.last_epoch,
            "partition_max_bytes": each.max_bytes,
        }
        topic = _named(each.key[0], query.version)
        if not topics or topics[-1][topic_name] != topic:
            topics.append({topic_name: topic, "partitions": []})
        topics[-1]["partitions"].append(entry)
    if empty_topic is not None:
        topics.append({topic_name: _named(empty_topic, query.version), "partitions": []})
    removed: dict[str, list[int]] = {}
    for name, partition in forgotten:
        removed.setdefault(name, []).append(partition)
    values: Values = {
        "replica_id": replica_id,
        "max_wait": query.max_wait_ms,
        "min_bytes": query.min_bytes,
        "max_bytes": query.max_bytes,
        "isolation_level": query.isolation,
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": topics,
        "forgotten_topics_data": [
            {topic_name: _named(name, query.version), "partitions": partitions}
            for name, partitions in removed.items()
        ],
        "rack_id": "",
    }
    if replica_id != -1 and query.version >= 15:
        values["replica_state"] = {"replica_id": replica_id, "replica_epoch": -1}
    return values


def _named(topic: str, version: int) -> Any:
    return uuid.UUID(topic) if version >= _WITH_IDS else topic


def read_answer(values: Values, elapsed_s: float) -> Answer:
    parts = []
    for topic in values["responses"]:
        name = str(topic["topic_id"]) if "topic_id" in topic else topic["topic"]
        for each in topic["partitions"]:
            aborted = each.get("aborted_transactions") or ()
            parts.append(
                Part(
                    (name, each["partition_index"]),
                    each["error_code"],
                    each["high_watermark"],
                    each.get("last_stable_offset", -1),
                    each.get("log_start_offset", -1),
                    each["records"] or b"",
                    tuple((one["producer_id"], one["first_offset"]) for one in aborted),
                    "diverging_epoch" in each,
                    each.get("preferred_read_replica", -1),
                )
            )
    return Answer(values.get("error_code", 0), values.get("session_id", 0), tuple(parts), elapsed_s)


def produce_values(topic: str, topic_id: uuid.UUID, partition: int, records: bytes) -> Values:
    data = {"name": topic, "topic_id": topic_id, "partition_data": [{"index": partition, "records": records}]}
    return {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": [data]}


class Truth:
    """A direct connection to the broker that leads all partitions."""

    def __init__(self, address: str) -> None:
        self._connection = Connection(address, "truth")

    def close(self) -> None:
        self._connection.close()

    def serves(self, key: int, version: int) -> bool:
        """Return whether the leader has a version of an API."""
        oldest, newest = self._connection.versions()[key]
        return oldest <= version <= newest

    def topic(self, name: str) -> Topic:
        """Look a topic up."""
        values = {"topics": [{"topic_id": None, "name": name}], "allow_auto_topic_creation": False}
        (found,) = self._connection.ask(Apis.METADATA, 12, values)["topics"]
        assert found["error_code"] == 0, found
        epochs = {each["partition_index"]: each["leader_epoch"] for each in found["partitions"]}
        return Topic(name, found["topic_id"], len(epochs), epochs)

    def wait_until_served(self, topic: Topic, timeout_s: float = 20.0) -> None:
        """Return when the leader reads every partition: metadata is known before the replicas are there."""
        deadline = time.monotonic() + timeout_s
        served = (0, _OUT_OF_RANGE)
        while any(self._part(topic, partition, 0).error not in served for partition in range(topic.partitions)):
            assert time.monotonic() < deadline, f"{topic.name} is not served"
            time.sleep(0.02)

    def twin(self, query: Query, replica_id: int = -1) -> Answer:
        """Return the leader's response to a fetch, without waiting."""
        version = max(query.version, 4)
        limit = query.max_bytes if query.version >= 3 else FIRST_FREE_LIMIT
        asked = attrs.evolve(query, version=version, max_wait_ms=0, min_bytes=0, max_bytes=limit)
        began = time.monotonic()
        values = self._connection.ask(Apis.FETCH, version, fetch_values(asked, query.wanted, replica_id=replica_id))
        return read_answer(values, time.monotonic() - began)

    def refresh(self, topic: Topic, partition: int) -> int:
        """Bring the copy of a partition's log up to the high watermark; return that."""
        log = topic.log(partition)
        offset = log.end
        if offset is None:
            offset = self._earliest(topic, partition)
        while True:
            found = self._part(topic, partition, offset)
            assert found.error == 0, (topic.name, partition, offset, found.error)
            log.extend(found.records)
            end = log.end if log.end is not None else offset
            if end >= found.high_watermark or not found.records:
                return found.high_watermark
            offset = end

    def _part(self, topic: Topic, partition: int, offset: int) -> Part:
        asked = Partition((topic.name, partition), offset, 1 << 25)
        query = Query(_VERSION, 0, 0, 0, 1 << 26, (asked,), (asked,))
        return self.twin(query).parts[0]

    def bounds(self, topic: Topic, partition: int) -> tuple[int, int, int]:
        """Return log start, high watermark and last stable offset."""
        found = self._part(topic, partition, self._earliest(topic, partition))
        return found.log_start, found.high_watermark, found.last_stable_offset

    def _earliest(self, topic: Topic, partition: int) -> int:
        asked = {"partition_index": partition, "timestamp": -2, "current_leader_epoch": -1}
        values = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic.name, "partitions": [asked]}]}
        return int(self._connection.ask(Apis.LIST_OFFSETS, 7, values)["topics"][0]["partitions"][0]["offset"])

    def produce(self, topic: Topic, partition: int, values: Sequence[bytes], codec: int = 0) -> int:
        """Append a batch; return its first offset."""
        return send_produce(self._connection, 9, topic, partition, build_batch(2, values, codec))


def send_produce(connection: Connection, version: int, topic: Topic, partition: int, records: bytes) -> int:
    """Append records and return their first offset. Raises: AssertionError: they were refused."""
    said = connection.ask(Apis.PRODUCE, version, produce_values(topic.name, topic.topic_id, partition, records))
    (found,) = said["responses"][0]["partition_responses"]
    assert found["error_code"] == 0, f"produce v{version} to {topic.name}-{partition}: error {found['error_code']}"
    return int(found["base_offset"])
