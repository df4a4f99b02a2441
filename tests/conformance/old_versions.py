"""Client requests in each version that Kafka 4 removed, encoded by an independent library."""

import io
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import attrs
import trio

from proxy.demo.client import KafkaConnection
from proxy.wire.frames import with_size
from proxy.wire.headers import RequestHeader, write_request_header
from tests.convert.versions.old import admin, commit, encoded, group, legacy_set, offset, produce

__all__ = ["CONVERSATIONS", "Heard", "Setting", "Speaker"]

Heard = dict[str, Any]
"""The fields of a response, by name."""

FIRST_MS = 1_700_000_000_000
NOT_READY = (14, 15, 16)
"""The errors of a coordinator that has just taken over."""
TOPIC_RESOURCE, ANY, READ, ALLOW = 2, 1, 3, 3


class Speaker:
    """One connection of a client that asks for no versions."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._correlation_id = 100

    async def ask(self, key: int, version: int, body: bytes) -> bytes:
        """The answer's body. Raises: ConnectionResetError: there is none."""
        await self.send(key, version, body)
        return await self.receive()

    async def receive(self) -> bytes:
        """Return the response to the last request."""
        frame = await self._connection.receive_frame()
        if frame is None:
            raise ConnectionResetError("the connection was closed")
        assert int.from_bytes(frame[:4]) == self._correlation_id
        return frame[4:]

    async def send(self, key: int, version: int, body: bytes) -> None:
        self._correlation_id += 1
        header = RequestHeader(key, version, self._correlation_id, "old")
        await self._connection.send_frame(with_size(write_request_header(header, flexible=False) + body))

    async def is_hung_up_on(self) -> bool:
        return await self._connection.receive_frame() is None


@attrs.frozen
class Setting:
    """The same names in every cluster; the topic has 100 records in each of two partitions, led by node 1."""

    topic: str
    group: str


Conversation = Callable[[Speaker, Setting], Awaitable[Heard]]


def decoded(kind: Any, body: bytes) -> Any:
    """All that an answer says but for the throttle time, as nested tuples."""
    stream = io.BytesIO(body)
    message = kind.decode(stream)
    assert not stream.read(), "there is more than the version has"
    fields = {name: getattr(message, name) for name in kind.SCHEMA.names if "throttle" not in name}
    return _tuples(fields)


def _tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple((name, _tuples(each)) for name, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(_tuples, value))
    return value


# --------------------------------------------------------------------------------------------------- records


def _producing(version: int) -> Conversation:
    magic = 1 if version == 2 else 0
    kind = (produce.ProduceResponse_v0, produce.ProduceResponse_v1, produce.ProduceResponse_v2)[version]

    async def converse(speaker: Speaker, setting: Setting) -> Heard:
        async def asked(sets: Mapping[int, bytes], *, acks: int = 1, topic: str = setting.topic) -> Any:
            body = encoded(produce.ProduceRequest_v2, acks, 5000, [(topic, list(sets.items()))])
            response = kind.decode(await speaker.ask(0, version, body))
            return [(name, sorted(partitions)) for name, partitions in response.topics]

        messages = [(FIRST_MS + n, b"k%d" % n, b"v%d" % n) for n in range(5)]
        plain = legacy_set(magic, messages)
        damaged = plain[:-1] + bytes([plain[-1] ^ 1])
        bare = legacy_set(magic, [(FIRST_MS, None, b"v"), (FIRST_MS, b"k", None)])
        heard = {
            "plain": await asked({0: plain, 1: plain}),
            "gzip": await asked({0: legacy_set(magic, messages, codec=1)}),
            "snappy": await asked({0: legacy_set(magic, messages, codec=2)}),
            "lz4": await asked({0: legacy_set(magic, messages, codec=3)}),
            "acknowledged by all": await asked({0: plain}, acks=-1),
            "no key, and a tombstone": await asked({0: bare}),
            "nothing": await asked({0: b""}),
            "half a message behind": await asked({0: plain + plain[:20]}),
            "damaged beside sound": await asked({0: damaged, 1: plain}),
            "no such topic": await asked({0: plain}, topic="no-such-topic"),
            "no such partition": await asked({7: plain}),
            "acks that there are not": await asked({0: plain}, acks=2),
            "too large": await asked({0: legacy_set(magic, [(FIRST_MS, None, bytes(1_200_000))])}),
        }
        body = encoded(produce.ProduceRequest_v2, 0, 5000, [(setting.topic, [(0, plain)])])
        await speaker.send(0, version, body)
        # By all, so that all of it can be read.
        heard["after one without acknowledgement"] = await asked({0: plain}, acks=-1)
        heard["the other partition"] = await asked({1: plain}, acks=-1)
        return heard

    return converse


# --------------------------------------------------------------------------------------------------- offsets


async def _list_offsets(speaker: Speaker, setting: Setting) -> Heard:
    async def asked(timestamp: int, most: int, *, topic: str = setting.topic, partition: int = 0) -> Any:
        body = encoded(offset.OffsetRequest_v0, -1, [(topic, [(partition, timestamp, most)])])
        return decoded(offset.OffsetResponse_v0, await speaker.ask(2, 0, body))

    body = encoded(offset.OffsetRequest_v0, -1, [(setting.topic, [(1, -2, 1), (0, -1, 1)])])
    return {
        "latest": await asked(-1, 1),
        "latest, many": await asked(-1, 100),
        "earliest": await asked(-2, 1),
        "earliest, many": await asked(-2, 100),
        "none at all": await asked(-1, 0),
        "two partitions": decoded(offset.OffsetResponse_v0, await speaker.ask(2, 0, body)),
        "a time to come": await asked(9_000_000_000_000, 1),
        "a time before": await asked(FIRST_MS - 1, 1),
        "a time between": await asked(FIRST_MS + 100, 1),
        "below earliest": await asked(-3, 1),
        "no such topic": await asked(-1, 1, topic="no-such-topic"),
        "no such partition": await asked(-1, 1, partition=7),
    }


def _committing(version: int) -> Conversation:
    async def converse(speaker: Speaker, setting: Setting) -> Heard:
        async def asked(
            at: int, *, topic: str = setting.topic, metadata: str | None = "m", member: str = ""
        ) -> Any:
            if version:
                said = (setting.group, 3 if member else -1, member, [(topic, [(0, at, -1, metadata)])])
                body = encoded(commit.OffsetCommitRequest_v1, *said)
            else:
                body = encoded(commit.OffsetCommitRequest_v0, setting.group, [(topic, [(0, at, metadata)])])
            return decoded(commit.OffsetCommitResponse_v0, await speaker.ask(8, version, body))

        heard = {
            "an offset": await asked(5),
            "a long metadata": await asked(6, metadata="m" * 5000),
            "no metadata": await asked(7, metadata=None),
            "no such topic": await asked(8, topic="no-such-topic"),
        }
        if version:
            heard["a member that is not"] = await asked(9, member="nobody")
        body = encoded(commit.OffsetFetchRequest_v1, setting.group, [(setting.topic, [0, 1])])
        heard["what is kept"] = decoded(commit.OffsetFetchResponse_v1, await speaker.ask(9, 1, body))
        return heard

    return converse


async def _fetch_offsets(speaker: Speaker, setting: Setting) -> Heard:
    body = encoded(commit.OffsetCommitRequest_v2, setting.group, -1, "", -1, [(setting.topic, [(0, 5, "m")])])
    committed = decoded(commit.OffsetCommitResponse_v2, await speaker.ask(8, 2, body))
    body = encoded(commit.OffsetFetchRequest_v0, setting.group, [(setting.topic, [0, 1]), ("no-such-topic", [0])])
    return {"committed": committed, "kept": decoded(commit.OffsetFetchResponse_v0, await speaker.ask(9, 0, body))}


_SUBSCRIPTION = struct.pack(">hih1si", 0, 1, 1, b"t", 0)
"""A subscription to topic ``t`` without user data, in version 0 of the consumer protocol."""


def _joining(version: int) -> Conversation:
    async def converse(speaker: Speaker, setting: Setting) -> Heard:
        protocols = [("range", _SUBSCRIPTION)]
        timeouts = (6000, 6000) if version else (6000,)
        kind = group.JoinGroupRequest_v1 if version else group.JoinGroupRequest_v0
        body = encoded(kind, setting.group, *timeouts, "", "consumer", protocols)
        joined = group.JoinGroupResponse_v0.decode(await speaker.ask(11, version, body))
        while joined.error_code in NOT_READY:
            await trio.sleep(0.1)
            joined = group.JoinGroupResponse_v0.decode(await speaker.ask(11, version, body))
        assert [each[0] for each in joined.members] == [joined.member_id] == [joined.leader_id]
        unknown = encoded(kind, setting.group, *timeouts, "nobody", "consumer", protocols)
        refused = group.JoinGroupResponse_v0.decode(await speaker.ask(11, version, unknown))
        leave = encoded(group.LeaveGroupRequest_v0, setting.group, joined.member_id)
        left = decoded(group.LeaveGroupResponse_v0, await speaker.ask(13, 0, leave))
        member = (joined.error_code, joined.generation_id, joined.group_protocol, joined.members[0][1])
        return {"joined": member, "refused": refused.error_code, "left": left}

    return converse


def _epochs(version: int) -> Conversation:
    async def converse(speaker: Speaker, setting: Setting) -> Heard:
        async def asked(partition: int, epoch: int) -> bytes:
            name = setting.topic.encode()
            body = struct.pack(f">ih{len(name)}siii", 1, len(name), name, 1, partition, epoch)
            return await speaker.ask(23, version, body)

        return {
            "the current one": await asked(0, 0),
            "one to come": await asked(0, 5),
            "no such partition": await asked(7, 0),
        }

    return converse


# ---------------------------------------------------------------------------------------------- administration


def _topics(version: int) -> Conversation:
    async def converse(speaker: Speaker, setting: Setting) -> Heard:
        kind = admin.CreateTopicsResponse_v1 if version else admin.CreateTopicsResponse_v0

        async def asked(name: str, partitions: int = 2, config: Sequence[tuple[str, str]] = ()) -> Any:
            topics: list[Any] = [(name, partitions, 1, [], list(config))]
            if version:
                body = encoded(admin.CreateTopicsRequest_v1, topics, 10_000, False)
            else:
                body = encoded(admin.CreateTopicsRequest_v0, topics, 10_000)
            return decoded(kind, await speaker.ask(19, version, body))

        name = f"{setting.topic}-made-by-v{version}"
        return {
            "made": await asked(name, config=[("retention.ms", "1000")]),
            "made again": await asked(name),
            "no partitions": await asked(name + "-none", 0),
            "a bad name": await asked("a/b"),
            "a bad config": await asked(name + "-bad", config=[("retention.ms", "soon")]),
        }

    return converse


async def _delete_topics(speaker: Speaker, setting: Setting) -> Heard:
    name = f"{setting.topic}-to-be-deleted"
    await speaker.ask(19, 2, encoded(admin.CreateTopicsRequest_v2, [(name, 1, 1, [], [])], 10_000, False))

    async def asked(*names: str) -> Any:
        body = encoded(admin.DeleteTopicsRequest_v0, list(names), 10_000)
        return decoded(admin.DeleteTopicsResponse_v0, await speaker.ask(20, 0, body))

    return {"deleted": await asked(name), "no such topic": await asked("no-such-topic")}


async def _describe_configs(speaker: Speaker, setting: Setting) -> Heard:
    async def asked(kind: int, name: str, keys: list[str] | None) -> Any:
        body = encoded(admin.DescribeConfigsRequest_v0, [(kind, name, keys)])
        response = decoded(admin.DescribeConfigsResponse_v0, await speaker.ask(32, 0, body))
        ((_, (resource,)),) = response
        return (*resource[:-1], sorted(resource[-1]))

    return {
        "set, inherited, and by default": await asked(
            TOPIC_RESOURCE, setting.topic, ["retention.bytes", "retention.ms", "cleanup.policy"]
        ),
        "of a broker": await asked(4, "1", ["log.retention.ms", "num.io.threads", "broker.rack"]),
        "no such topic": await asked(TOPIC_RESOURCE, "no-such-topic", None),
    }


async def _acls(speaker: Speaker, setting: Setting) -> Heard:
    async def described(name: str | None = setting.topic) -> Any:
        body = encoded(admin.DescribeAclsRequest_v0, TOPIC_RESOURCE, name, None, None, ANY, ANY)
        return decoded(admin.DescribeAclsResponse_v0, await speaker.ask(29, 0, body))

    async def created(name: str, principal: str = "User:a") -> Any:
        body = encoded(admin.CreateAclsRequest_v0, [(TOPIC_RESOURCE, name, principal, "*", READ, ALLOW)])
        return decoded(admin.CreateAclsResponse_v0, await speaker.ask(30, 0, body))

    async def settled(acls: int) -> Any:
        """Wait until each broker applies the access rules."""
        for _ in range(100):
            acls_found = await described()
            if len(acls_found[-1][1]) == acls:
                break
            await trio.sleep(0.05)
        return acls_found

    async def deleted(name: str = setting.topic) -> Any:
        body = encoded(admin.DeleteAclsRequest_v0, [(TOPIC_RESOURCE, name, None, None, ANY, ANY)])
        return decoded(admin.DeleteAclsResponse_v0, await speaker.ask(31, 0, body))

    heard = {"none": await described(), "made": await created(setting.topic)}
    prefix = [(TOPIC_RESOURCE, setting.topic, 4, "User:b", "*", READ, ALLOW)]
    await speaker.ask(30, 1, encoded(admin.CreateAclsRequest_v1, prefix))
    return heard | {
        "a principal that is none": await created(setting.topic, "nobody"),
        "there": await settled(1),
        "deleted": await deleted(),
        "gone": await settled(0),
        "deleted again": await deleted(),
    }


# -------------------------------------------------------------------------------------------- log folders, tokens


def _text(text: str | bytes) -> bytes:
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack(">h", len(data)) + data


async def _move_log(speaker: Speaker, setting: Setting) -> Heard:
    dirs = struct.pack(">i", 1) + _text("/no/such/folder") + struct.pack(">i", 1) + _text(setting.topic)
    return {"no such folder": await speaker.ask(34, 0, dirs + struct.pack(">ii", 1, 0))}


async def _describe_logs(speaker: Speaker, setting: Setting) -> Heard:
    body = struct.pack(">i", 1) + _text(setting.topic) + struct.pack(">ii", 1, 0)
    stream = io.BytesIO(await speaker.ask(35, 0, body))
    throttle_ms, folders, error = struct.unpack(">iih", stream.read(10))
    stream.read(*struct.unpack(">h", stream.read(2)))
    rest = stream.read()
    size = struct.Struct(">qq?")
    _, lag, is_future = size.unpack(rest[-size.size :])
    return {"of one partition": (throttle_ms, folders, error, rest[: -size.size], lag, is_future)}


def _token(key: int, body: bytes) -> Conversation:
    async def converse(speaker: Speaker, setting: Setting) -> Heard:  # noqa: ARG001
        return {"of nobody": await speaker.ask(key, 0, body)}

    return converse


CONVERSATIONS: Mapping[tuple[int, int], Conversation] = {
    **{(0, version): _producing(version) for version in range(3)},
    (2, 0): _list_offsets,
    (8, 0): _committing(0),
    (8, 1): _committing(1),
    (9, 0): _fetch_offsets,
    (11, 0): _joining(0),
    (11, 1): _joining(1),
    (19, 0): _topics(0),
    (19, 1): _topics(1),
    (20, 0): _delete_topics,
    (23, 0): _epochs(0),
    (23, 1): _epochs(1),
    (29, 0): _acls,
    (30, 0): _acls,
    (31, 0): _acls,
    (32, 0): _describe_configs,
    (34, 0): _move_log,
    (35, 0): _describe_logs,
    (38, 0): _token(38, struct.pack(">iq", 0, -1)),
    (39, 0): _token(39, struct.pack(">i1sq", 1, b"h", -1)),
    (40, 0): _token(40, struct.pack(">i1sq", 1, b"h", -1)),
    (41, 0): _token(41, struct.pack(">i", -1)),
}
