"""Requests of many APIs and versions that are sent without waiting, and their expected responses."""

import time
from collections.abc import Callable
from typing import Any, Final

import attrs

from tests.differential.raw.connection import Connection
from tests.differential.raw.judge import INSTANT_MS, Partition, Query, Violation
from tests.differential.raw.log import build_batch
from tests.differential.raw.messages import Apis, Values
from tests.differential.raw.sequence import Piped, Pipeline
from tests.differential.raw.truth import Topic, Truth, fetch_values, produce_values, read_answer

__all__ = ["Context", "run"]

_UNSUPPORTED: Final = 35
_KEYS: Final = {
    "produce": Apis.PRODUCE,
    "list offsets": Apis.LIST_OFFSETS,
    "commit": Apis.OFFSET_COMMIT,
    "committed": Apis.OFFSET_FETCH,
    "metadata": Apis.METADATA,
    "coordinator": Apis.FIND_COORDINATOR,
    "versions": Apis.API_VERSIONS,
    "fetch": Apis.FETCH,
}
_NEWEST: Final = {
    # With topic ids, or of groups with epochs: later.
    "produce": 12,
    "list offsets": 9,
    "commit": 9,
    "committed": 9,
    "metadata": 12,
    "coordinator": 4,
    "versions": 3,
    "fetch": 12,
}


@attrs.frozen
class Context:
    """The parts of a sequence that a pipeline needs."""

    topic: Topic
    group: str
    truth: Truth
    connection: Connection
    make_values: Callable[[int, int], list[bytes]]
    note: Callable[[str], None]
    has_leader_reads: bool
    young: frozenset[int] = frozenset()
    """Partitions that changed so lately that a fetch may not see it: records or the leader gone, or made again."""


@attrs.define
class _State:
    """The effect of the requests so far, executed one after the other as by a broker."""

    starts: dict[int, int]
    watermarks: dict[int, int]
    committed: dict[int, int] = attrs.field(factory=dict)
    produced: list[tuple[int, int, list[bytes]]] = attrs.field(factory=list)
    """Partition, base offset, values."""


def run(step: Pipeline, context: Context) -> list[Violation]:
    """Send all requests, then judge each response as it comes."""
    versions = context.connection.versions()
    bounds = {part: context.truth.bounds(context.topic, part) for part in range(context.topic.partitions)}
    state = _State(
        {part: each[0] for part, each in bounds.items()}, {part: each[1] for part, each in bounds.items()}
    )
    sent: list[tuple[Piped, int, list[bytes]]] = []
    requests: list[tuple[int, int, Values]] = []
    for number, piped in enumerate(step.requests):
        oldest, newest = versions[_KEYS[piped.api]]
        newest = min(newest, _NEWEST[piped.api])
        version = min(oldest + int(piped.version * (newest - oldest + 1)), newest)
        values = context.make_values(piped.count, piped.size) if piped.api == "produce" else []
        body = _body(piped, version, context, values, number, state)
        context.note(f"PIPED {piped.api} v{version} partition {piped.partition} {_more(piped)}")
        requests.append((_KEYS[piped.api], version, body))
        sent.append((piped, version, values))
    found: list[Violation] = []
    with context.connection.pipelined(requests):
        for number, (piped, version, values) in enumerate(sent):
            said = context.connection.receive(30)
            for text in _judge(piped, version, said, values, number, state, context):
                kind = "pipeline-overtaken" if "later" in text else f"pipeline-{piped.api.replace(' ', '-')}"
                found.append(Violation(kind, f"number {number} v{version}: {text}"))
            context.note(f"  {piped.api} v{version}: {str(_short(said))[:200]}")
    found += _check_log(state, context)
    return found


def _more(piped: Piped) -> str:
    return f"{piped.count} x {piped.size} B codec {piped.codec}" if piped.api == "produce" else ""


def _short(said: Any) -> Any:
    if isinstance(said, dict):
        return {name: _short(value) for name, value in said.items()}
    if isinstance(said, list):
        return [_short(each) for each in said[:4]]
    return f"{len(said)} bytes" if isinstance(said, bytes) else said


def _offset_to_commit(number: int) -> int:
    return 1_000 + number


def _body(piped: Piped, version: int, context: Context, values: list[bytes], number: int, state: _State) -> Values:
    name, partition = context.topic.name, piped.partition
    topics: list[Values]
    match piped.api:
        case "produce":
            magic = 2 if version >= 3 else 1 if version == 2 else 0
            records = build_batch(magic, values, piped.codec)
            return produce_values(name, context.topic.topic_id, partition, records)
        case "list offsets":
            asked: Values = {
                "partition_index": partition,
                "timestamp": -1 if piped.latest else -2,
                "max_num_offsets": piped.count,
                "current_leader_epoch": -1,
            }
            topics = [{"name": name, "partitions": [asked]}]
            return {"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout_ms": 1000}
        case "commit":
            committed = {
                "partition_index": partition,
                "committed_offset": _offset_to_commit(number),
                "commit_timestamp": -1,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            return {
                "group_id": context.group,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "group_instance_id": None,
                "retention_time": -1,
                "topics": [{"name": name, "partitions": [committed]}],
            }
        case "committed":
            topics = [{"name": name, "partition_indexes": [partition]}]
            group: Values = {"group_id": context.group, "member_id": None, "member_epoch": -1, "topics": topics}
            return {"group_id": context.group, "topics": topics, "groups": [group], "require_stable": False}
        case "metadata":
            topics = [{"name": name, "topic_id": None}]
            return {
                "topics": topics,
                "allow_auto_topic_creation": False,
                "include_cluster_authorized_operations": False,
                "include_topic_authorized_operations": False,
            }
        case "coordinator":
            return {"key": context.group, "key_type": 0, "coordinator_keys": [context.group]}
        case "versions":
            return {"client_software_name": "raw", "client_software_version": "1"}
        case "fetch":
            asked_for = Partition((name, partition), state.starts[partition], 1 << 20)
            query = Query(version, 0, piped.max_wait_ms, 1, 1 << 20, (asked_for,), (asked_for,))
            return fetch_values(query, (asked_for,))


def _judge(
    piped: Piped, version: int, said: Values, values: list[bytes], number: int, state: _State, context: Context
) -> list[str]:
    match piped.api:
        case "produce":
            return _judge_produce(piped, said, values, state)
        case "list offsets":
            return _judge_offsets(piped, version, said, state)
        case "commit":
            (found,) = said["topics"][0]["partitions"]
            if found["error_code"] == _UNSUPPORTED and context.truth.serves(Apis.OFFSET_COMMIT, version):
                return []  # brokers that have version 0 no longer have its storage
            if found["error_code"]:
                return [f"error {found['error_code']}"]
            state.committed[piped.partition] = _offset_to_commit(number)
        case "committed":
            topics = said["groups"][0]["topics"] if "groups" in said else said["topics"]
            (found,) = topics[0]["partitions"]
            expected = state.committed.get(piped.partition)
            if found["error_code"] == _UNSUPPORTED and context.truth.serves(Apis.OFFSET_FETCH, version):
                return []
            if expected is not None and found["committed_offset"] != expected:
                return [f"committed offset {found['committed_offset']}, {expected} was committed before"]
        case "metadata":
            (topic,) = [each for each in said["topics"] if each["name"] == context.topic.name]
            leaders = {each["leader_id"] for each in topic["partitions"]}
            if topic["error_code"] or len(topic["partitions"]) != context.topic.partitions or leaders != {1}:
                return [f"{topic}"]
        case "coordinator":
            found = said["coordinators"][0] if "coordinators" in said else said
            if found["error_code"] or found["node_id"] != 1:
                return [f"{found}"]
        case "versions":
            if said["error_code"]:
                return [f"error {said['error_code']}"]
        case "fetch":
            if piped.partition in context.young:
                return []
            return _judge_fetch(piped, version, said, state, has_leader_reads=context.has_leader_reads)
    return []


def _judge_produce(piped: Piped, said: Values, values: list[bytes], state: _State) -> list[str]:
    (found,) = said["responses"][0]["partition_responses"]
    if found["error_code"]:
        return [f"error {found['error_code']}"]
    base, least = found["base_offset"], state.watermarks[piped.partition]
    state.produced.append((piped.partition, base, values))
    state.watermarks[piped.partition] = max(least, base + len(values))
    return [f"base offset {base}, but {least} records were there before"] if base < least else []


def _judge_offsets(piped: Piped, version: int, said: Values, state: _State) -> list[str]:
    (found,) = said["topics"][0]["partitions"]
    if found["error_code"]:
        return [f"error {found['error_code']}"]
    offset = found["old_style_offsets"][0] if version == 0 else found["offset"]
    expected = (state.watermarks if piped.latest else state.starts)[piped.partition]
    if offset > expected and piped.latest:
        return [f"offset {offset}, which a later request has made of {expected}"]
    return [f"offset {offset}, expected {expected}"] if offset != expected else []


def _judge_fetch(piped: Piped, version: int, said: Values, state: _State, *, has_leader_reads: bool) -> list[str]:
    answer = read_answer(said, 0.0)
    if len(answer.parts) != 1:
        return [f"{len(answer.parts)} partitions"]
    (part,) = answer.parts
    found = []
    if part.error:
        return [f"error {part.error}"]
    least, start = state.watermarks[piped.partition], state.starts[piped.partition]
    if not has_leader_reads:
        return []
    # Unless the client hardly waits, its records may have been read up to 1 s ago, with the offsets of that time.
    is_fresh = piped.max_wait_ms < INSTANT_MS or not part.records
    if part.high_watermark < least and is_fresh:
        found.append(f"high watermark {part.high_watermark}, but {least} was acknowledged before")
    # Before version 3 a batch over the limit is cut.
    if least > start and not part.records and version >= 3:
        found.append(f"no records, but there are some from {start} to {least}")
    return found


def _check_log(state: _State, context: Context) -> list[Violation]:
    """Find the produced records in the log where their responses say."""
    found = []
    for partition in {each[0] for each in state.produced}:
        deadline = time.monotonic() + 5
        end = max(base + len(values) for where, base, values in state.produced if where == partition)
        while context.truth.refresh(context.topic, partition) < end and time.monotonic() < deadline:
            time.sleep(0.05)
    for partition, base, values in state.produced:
        records = context.topic.log(partition).records(base, base + len(values))
        if [record[2] for record in records] != values:
            text = f"partition {partition} offset {base}: not the {len(values)} records that were acknowledged"
            found.append(Violation("pipeline-order", text))
    ends: dict[int, int] = {}
    for partition, base, values in state.produced:
        if base < ends.get(partition, 0):
            found.append(
                Violation("pipeline-order", f"partition {partition}: offset {base} after {ends[partition]}")
            )
        ends[partition] = base + len(values)
    return found
