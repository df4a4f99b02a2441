"""The attacks, each an async function; ``python -m tests.adversaries.attacks NAME ADDRESS SECONDS`` runs one.

They run in a process of their own, so that they take no time from the honest clients that are measured meanwhile.
"""

import gzip
import random
import struct
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import Final

import trio

from proxy.config.allowed_apis import AllowedApis
from proxy.wire.primitives import write_string, write_uvarint
from proxy.wire.records import Codec
from tests.adversaries.damaging import CLIENT_ID
from tests.convert.logs import Record, message
from tests.fuzz import seeds
from tests.fuzz.mutation import Mutator

__all__ = ["ATTACKS", "BACKLOG", "TOPIC", "Attack"]

TOPIC: Final = "adversaries"
"""A topic of three partitions with few records."""
BACKLOG: Final = "adversaries-backlog"
"""A topic of three partitions with tens of MiB of records each."""
_MIB: Final = 1 << 20
_MANY: Final = 2**31 - 1
_MOST: Final = 20_000
"""The most partitions of a fetch: ``--max-fetch-partitions``."""

_CLIENT_ID: Final = CLIENT_ID.decode()
_HARMLESS: Final = AllowedApis.parse("clients,describe").keys
"""The keys of APIs by which a client cannot harm others at the brokers: others are forwarded unread anyway."""

Attack = Callable[[str], Awaitable[None]]
ATTACKS: Final[dict[str, Attack]] = {}
"""By name; each is repeated until the trial ends."""


def _attack(function: Attack) -> Attack:
    ATTACKS[function.__name__.replace("_", "-")] = function
    return function


def _frame(key: int, version: int, *body: bytes, client_id: str = _CLIENT_ID, flexible: bool = False) -> bytes:
    header = struct.pack(">hhi", key, version, 7) + _text(client_id) + (b"\0" if flexible else b"")
    content = header + b"".join(body)
    return struct.pack(">i", len(content)) + content


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _array(items: Iterable[bytes]) -> bytes:
    listed = list(items)
    return struct.pack(">i", len(listed)) + b"".join(listed)


def _fetch(
    topics: Sequence[tuple[str, Iterable[int]]],
    *,
    version: int = 7,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    limit_bytes: int = _MANY,
    epoch: int = -1,
    forgotten: bytes = bytes(4),
    client_id: str = _CLIENT_ID,
) -> bytes:
    entry = {4: ">iqi", 7: ">iqqi"}[version]
    offsets = (0,) if version == 4 else (0, -1)
    named = _array(
        _text(topic) + _array(struct.pack(entry, partition, *offsets, limit_bytes) for partition in partitions)
        for topic, partitions in topics
    )
    head = struct.pack(">iiiib", -1, max_wait_ms, min_bytes, limit_bytes, 0)
    if version >= 7:
        head += struct.pack(">ii", 0, epoch)
        named += forgotten
    return _frame(1, version, head, named, client_id=client_id)


def _produce(sets: Iterable[bytes], version: int = 0) -> bytes:
    partitions = _array(struct.pack(">ii", nth, len(each)) + each for nth, each in enumerate(sets))
    return _frame(0, version, struct.pack(">hi", 1, 5000), struct.pack(">i", 1), _text(TOPIC), partitions)


async def _open(address: str) -> trio.SocketStream:
    host, port = address.rsplit(":", 1)
    return await trio.open_tcp_stream(host, int(port))


async def _send(address: str, *frames: bytes, drains: bool = True, waits: bool = False) -> None:
    """Send *frames* on one connection; then read until it ends or *drains* is false, and *waits* for ever."""
    with suppress(OSError, trio.BrokenResourceError):
        async with await _open(address) as stream, trio.open_nursery() as nursery:
            if drains:
                nursery.start_soon(_discard, stream, len(frames))
            # Here, too: an exception that leaves a nursery is in a group, which suppress does not look into.
            with suppress(trio.BrokenResourceError):
                for frame in frames:
                    await stream.send_all(frame)
            if waits or not drains:
                await trio.sleep_forever()


async def _discard(stream: trio.SocketStream, responses: int) -> None:
    with suppress(OSError, trio.BrokenResourceError):
        for _ in range(responses):
            if not (size := await _exactly(stream, 4)):
                return
            left = struct.unpack(">i", size)[0]
            while left:
                data = await stream.receive_some(min(left, _MIB))
                if not data:
                    return
                left -= len(data)


async def _exactly(stream: trio.SocketStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = await stream.receive_some(size - len(data))
        if not more:
            return b""
        data += more
    return data


async def _together(count: int, one: Callable[[], Awaitable[None]]) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(one)


# ------------------------------------------------------------------------------- large requests of old versions


def _old_commit(size_mib: int) -> bytes:
    entry = struct.Struct(">iqh")
    count = size_mib * _MIB // entry.size
    partitions = _array(entry.pack(nth, 0, 0) for nth in range(count))
    return _frame(8, 0, _text("g"), struct.pack(">i", 1), _text(TOPIC), partitions)


@_attack
async def large_offset_commit(address: str) -> None:
    """One OffsetCommit v0 of 10 MiB, which is upgraded."""
    await _send(address, _old_commit(10))


@_attack
async def large_list_offsets(address: str) -> None:
    """One ListOffsets v0 of 10 MiB, which is upgraded."""
    entry = struct.Struct(">iqi")
    partitions = _array(entry.pack(nth, -1, 1) for nth in range(10 * _MIB // entry.size))
    await _send(address, _frame(2, 0, struct.pack(">ii", -1, 1), _text(TOPIC), partitions))


@_attack
async def large_produce(address: str) -> None:
    """One Produce v0 of 30 MiB, with a message for each of a million partitions."""
    one = message(Record(0, -1, None, b""), 0)
    await _send(address, _produce([one] * (30 * _MIB // (len(one) + 8))))


@_attack
async def large_produce_of_one_partition(address: str) -> None:
    """One Produce v0 of 30 MiB, with a million messages for one partition."""
    one = message(Record(0, -1, None, b""), 0)
    await _send(address, _produce([one * (30 * _MIB // len(one))]))


@_attack
async def compressed_produce(address: str) -> None:
    """Eight Produce v2 of 64 kB at once, each of which decompresses to 60 MiB."""
    wrapped = gzip.compress(message(Record(0, 1_000, None, bytes(60 * _MIB)), 1))
    bomb = message(Record(0, 1_000, None, wrapped), 1, codec=Codec.GZIP)
    await _together(8, partial(_send, address, _produce([bomb], 2)))


@_attack
async def nested_produce(address: str) -> None:
    """Eight Produce v0 at once of messages in messages in messages, compressed each time."""
    inner = message(Record(0, -1, None, bytes(_MIB)), 0)
    for _ in range(6):
        inner = message(Record(0, -1, None, gzip.compress(inner * 4)), 0, codec=Codec.GZIP)
    await _together(8, partial(_send, address, _produce([inner])))


# --------------------------------------------------------------------------------------------- fetches


@_attack
async def pipelined_fetches(address: str) -> None:
    """One fetch that waits, and behind it 60 of 20,000 partitions each, on the same connection."""
    first = _fetch([(TOPIC, [0])], version=4, max_wait_ms=60_000, min_bytes=_MANY)
    rest = _fetch([(TOPIC, range(_MOST))], version=4)
    await _send(address, first, *[rest] * 60, waits=True)


@_attack
async def idle_after_large_fetch(address: str) -> None:
    """20 connections that fetch 20,000 partitions once, and then rest."""
    one = _fetch([(TOPIC, range(_MOST))], version=4)
    await _together(20, partial(_send, address, one, waits=True))


@_attack
async def refused_fetches(address: str) -> None:
    """Fetches of 100,000 partitions, more than are allowed, on 20 connections."""
    one = _fetch([(TOPIC, range(100_000))])
    await _together(20, partial(_send, address, one, waits=True))


@_attack
async def large_sessions(address: str) -> None:
    """20 fetch sessions of 20,000 partitions each."""
    one = _fetch([(TOPIC, range(_MOST))], epoch=0)
    await _together(20, partial(_send, address, one, waits=True))


@_attack
async def sessions_of_long_names(address: str) -> None:
    """20 fetch sessions with 18,000 topics of 249 characters each, nearly the largest allowed fetch."""
    first = random.randrange(10**9)
    one = _fetch([(f"{first + nth}".ljust(249, "x"), [0]) for nth in range(18_000)], epoch=0)
    await _together(20, partial(_send, address, one, waits=True))


@_attack
async def many_new_sessions(address: str) -> None:
    """A new fetch session of 500 partitions in each fetch, on 20 connections."""
    one = _fetch([(TOPIC, range(500))], epoch=0)
    await _together(20, partial(_send, address, *[one] * 50))


@_attack
async def many_waiting_fetches(address: str) -> None:
    """400 connections with a fetch each that waits for a minute."""
    one = _fetch([(TOPIC, [0, 1, 2])], max_wait_ms=60_000, min_bytes=_MANY)
    await _together(400, partial(_send, address, one, waits=True))


@_attack
async def many_client_ids(address: str) -> None:
    """Connections with a client id of their own each, that fetch once and leave, 20 at a time."""

    async def one() -> None:
        await _send(address, _fetch([(TOPIC, [0])], client_id=f"{random.randrange(10**12)}" * 10))

    await _together(20, one)


@_attack
async def forgotten_partitions(address: str) -> None:
    """A session whose fetches forget 20,000 partitions that it does not have."""
    gone = struct.pack(">i", 1) + _text(TOPIC) + _array(struct.pack(">i", nth) for nth in range(_MOST))
    await _send(address, _fetch([(TOPIC, [0])], epoch=0), *[_fetch([], epoch=0, forgotten=gone)] * 5)


@_attack
async def made_up_topics(address: str) -> None:
    """Fetches of 3,000 topics that do not exist, with names of 249 characters, other ones each time."""
    names = [f"{random.randrange(10**12)}".ljust(249, "n") for _ in range(3_000)]
    await _send(address, _fetch([(name, [0]) for name in names], version=4))


@_attack
async def unread_responses(address: str) -> None:
    """50 connections that fetch a backlog with large limits, and read nothing."""
    one = _fetch([(BACKLOG, [0, 1, 2])], version=4)
    await _together(50, partial(_send, address, one, one, drains=False))


@_attack
async def trickling_readers(address: str) -> None:
    """20 connections that fetch a backlog with large limits, and read a byte every two seconds."""

    async def one() -> None:
        with suppress(OSError, trio.BrokenResourceError):
            async with await _open(address) as stream:
                await stream.send_all(_fetch([(BACKLOG, [0, 1, 2])], version=4))
                while await stream.receive_some(1):
                    await trio.sleep(2)

    await _together(20, one)


@_attack
async def aborted_reads(address: str) -> None:
    """Connections that fetch a backlog, read 1 KiB of it and go away, 10 at a time."""

    async def one() -> None:
        with suppress(OSError, trio.BrokenResourceError):
            async with await _open(address) as stream:
                await stream.send_all(_fetch([(BACKLOG, [0, 1, 2])], version=4))
                await stream.receive_some(1024)

    await _together(10, one)


@_attack
async def converted_backlog(address: str) -> None:
    """10 old consumers that fetch a backlog, converted, from its start, again and again."""
    body = struct.pack(">iii", -1, 0, 1) + struct.pack(">i", 1) + _text(BACKLOG)
    one = _frame(1, 2, body, _array(struct.pack(">iqi", nth, 0, _MIB) for nth in range(3)))
    await _together(10, partial(_send, address, *[one] * 20))


# ------------------------------------------------------------------------------- connections and frames


async def _claim(address: str, size: int, sent: int) -> None:
    with suppress(OSError, trio.BrokenResourceError):
        async with await _open(address) as stream:
            await stream.send_all(struct.pack(">i", size) + bytes(sent))
            await stream.receive_some(1)


@_attack
async def claimed_sizes(address: str) -> None:
    """50 connections with a size prefix of 100 MiB and four more bytes."""
    await _together(50, partial(_claim, address, 100 * _MIB, 4))


@_attack
async def half_requests(address: str) -> None:
    """200 connections that have sent half of a request of 120 KiB."""
    await _together(200, partial(_claim, address, 120 * 1024, 60 * 1024))


@_attack
async def half_large_requests(address: str) -> None:
    """Six connections that have sent 20 of 30 MiB, and go on with a byte a second."""

    async def one() -> None:
        with suppress(OSError, trio.BrokenResourceError):
            async with await _open(address) as stream:
                await stream.send_all(struct.pack(">i", 30 * _MIB) + bytes(20 * _MIB))
                while True:
                    await stream.send_all(b"x")
                    await trio.sleep(1)

    await _together(6, one)


@_attack
async def silent_connections(address: str) -> None:
    """400 connections that say nothing."""
    await _together(400, partial(_send, address, waits=True))


@_attack
async def connection_storm(address: str) -> None:
    """Connections that are opened, ask for versions and leave, 50 at a time."""
    await _together(50, partial(_send, address, _frame(18, 0)))


@_attack
async def software_names(address: str) -> None:
    """ApiVersions v3 with other software names each time, 20 connections at a time."""

    async def one() -> None:
        name = f"s{random.randrange(10**12)}".encode()
        texts = b"".join(bytes([len(each) + 1]) + each for each in (name, b"1")) + b"\0"
        await _send(address, _frame(18, 3, texts, flexible=True))

    await _together(20, one)


@_attack
async def tagged_fields(address: str) -> None:
    """An ApiVersions v3 with 100,000 tagged fields."""
    tags = b"".join(write_uvarint(nth) + b"\0" for nth in range(1_000, 101_000))
    await _send(address, _frame(18, 3, b"\x02a\x02b", write_uvarint(100_000), tags, flexible=True))


@_attack
async def tagged_fields_of_a_fetch(address: str) -> None:
    """A Fetch v12 of 20 partitions with 10,000 tagged fields each."""
    tags = write_uvarint(10_000) + b"".join(write_uvarint(nth) + b"\0" for nth in range(1_000, 11_000))
    partitions = b"".join(struct.pack(">iiqiqi", nth, -1, 0, -1, -1, _MANY) + tags for nth in range(20))
    topic = write_string(TOPIC, flexible=True) + write_uvarint(21) + partitions + b"\0"
    head = struct.pack(">iiiibii", -1, 0, 1, _MANY, 0, 0, -1)
    await _send(address, _frame(1, 12, head, write_uvarint(2), topic, b"\x01\x01\0", flexible=True))


@_attack
async def coordinators_of_many_groups(address: str) -> None:
    """A FindCoordinator v4 with 100,000 groups."""
    groups = b"".join(write_string(f"group-{nth}", flexible=True) for nth in range(100_000))
    await _send(address, _frame(10, 4, b"\0", write_uvarint(100_001), groups, b"\0", flexible=True))


@_attack
async def made_up_versions(address: str) -> None:
    """20 connections with a request of each ApiVersions version there could be."""
    frames = b"".join(_frame(18, version) for version in range(5, 2**15))
    await _together(20, partial(_send, address, frames, waits=True))


@_attack
async def large_sasl_requests(address: str) -> None:
    """Six SaslAuthenticate requests of 90 MiB."""
    await _together(6, partial(_send, address, _frame(36, 0, struct.pack(">i", 90 * _MIB), bytes(90 * _MIB))))


@_attack
async def array_sizes(address: str) -> None:
    """Requests of many APIs whose arrays claim two billion elements."""
    for key, version in ((0, 0), (1, 4), (2, 0), (3, 1), (8, 0), (9, 1), (19, 1)):
        await _send(address, _frame(key, version, struct.pack(">i", _MANY) * 6))


@_attack
async def garbage(address: str) -> None:
    """Random frames, 20 connections at a time."""

    async def one() -> None:
        body = random.randbytes(random.randrange(8, 200))
        key = random.randrange(70)
        await _send(address, _frame(key, random.randrange(14), body, client_id=f"g{random.randrange(10**6)}"))

    await _together(20, one)


@_attack
async def damaged_requests(address: str) -> None:
    """Requests of many APIs, damaged at random, on 20 connections."""
    chance = random.Random()
    mutator = Mutator(_requests(), chance.randrange(2**31))

    async def one() -> None:
        frames = [mutator.next() for _ in range(chance.randrange(1, 10))]
        with trio.move_on_after(0.5):  # brokers wait for the rest of requests that are cut off, or hold them
            await _send(address, *(struct.pack(">i", len(each)) + each for each in frames))

    await _together(20, one)


@_attack
async def damaged_responses(address: str) -> None:
    """Requests of many APIs, whose responses are damaged by a relay (``damaging``), on 40 connections."""
    frames = _requests()

    async def one() -> None:
        some = random.choices(frames, k=random.randrange(1, 10))
        with trio.move_on_after(0.5):
            await _send(address, *(struct.pack(">i", len(each)) + each for each in some))

    await _together(40, one)


@cache
def _requests() -> tuple[bytes, ...]:
    """Return requests, without sizes, of the APIs that cannot harm honest clients at the brokers."""
    current = seeds.request_frames(_CLIENT_ID)
    old = (_frame(key, version, body)[4:] for key, version, body in seeds.old_requests())
    harmless = [each for each in (*current, *old) if struct.unpack_from(">h", each)[0] in _HARMLESS]
    fetches = [_fetch([(TOPIC, [0, 1, 2])], version=version)[4:] for version in (4, 7)]
    return (*harmless, *fetches * 20)


@_attack
async def other_protocols(address: str) -> None:
    """HTTP and TLS, 20 connections at a time."""
    for first in (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"):
        await _together(20, partial(_send, address, first))


@_attack
async def pipelined_metadata(address: str) -> None:
    """1,000 requests for the metadata of all topics on each of 10 connections that read nothing."""
    one = _frame(3, 1, struct.pack(">i", -1))
    await _together(10, partial(_send, address, *[one] * 1_000, drains=False))


@_attack
async def group_storm(address: str) -> None:
    """FindCoordinator and OffsetFetch of made-up groups, 20 connections at a time."""

    async def one() -> None:
        group = _text(f"group-{random.randrange(10**9)}")
        offsets = _frame(9, 0, group, struct.pack(">i", 1), _text(TOPIC), _array([bytes(4)]))
        await _send(address, *[_frame(10, 0, group), offsets] * 10)

    await _together(20, one)


async def _carry_out(name: str, address: str, seconds: float) -> None:
    with trio.move_on_after(seconds):
        while True:
            await ATTACKS[name](address)
            await trio.sleep(0.01)


if __name__ == "__main__":
    trio.run(_carry_out, sys.argv[1], sys.argv[2], float(sys.argv[3]))
