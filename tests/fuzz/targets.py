"""Fuzzing of the parsers of ``wire`` and of the conversion, and their postconditions."""

import struct
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, Final
from zlib import crc32

from crc32c import crc32c

from proxy.cluster.topology import Topology
from proxy.convert import codecs, kernel
from proxy.convert.down import DownConversion, needs_conversion
from proxy.convert.types import ConversionTarget, Converted
from proxy.convert.up import to_batches
from proxy.errors import BadRecords, MalformedFrame, ProxyError
from proxy.wire import addresses, api_versions, fetch, messages, produce
from proxy.wire.apis import CARRIES_ADDRESSES, ApiKey
from proxy.wire.fetch import request_layout
from proxy.wire.frames import FrameReader
from proxy.wire.headers import read_request_header, write_request_header
from proxy.wire.primitives import Cursor
from proxy.wire.records import Codec, entries, value_of
from tests.convert.kernels import load_interpreted, used
from tests.fuzz import harness, seeds

__all__ = ["TARGETS"]

_MAX_FRAME: Final = 1 << 16
_DECOMPRESSED: Final = 256 * 1024
_SIZE_BYTES: Final = 4


def _u8(data: bytes, at: int) -> int:
    return data[at] if at < len(data) else 0


def _map_address(node_id: int, host: str, port: int) -> tuple[str, int] | None:
    return None if node_id % 7 == 3 else (host[:3] or "h", port & 0xFFFF)


# --------------------------------------------------------------------------------------------------- frames


def _feed_frames(data: bytes) -> object:
    """The first byte says in how large parts the rest arrives."""
    part = (1, 2, 3, 5, 100, 4096, 16 * 1024, 1 << 20)[_u8(data, 0) % 8]
    data = data[:300] if part < 100 else data[: 1 << 15]
    reader = FrameReader(_MAX_FRAME)
    arriving = memoryview(data)[1:]
    taken: list[bytes] = []
    while arriving:
        if reader.needed_bytes:
            assert reader.needed_bytes <= _MAX_FRAME
            reader.allocate()
        space = reader.get_space()
        assert space
        assert len(space) <= max(_MAX_FRAME, 16 * 1024)
        size = min(part, len(space), len(arriving))
        space[:size] = arriving[:size]
        taken += map(bytes, reader.process_received(size))
        arriving = arriving[size:]
    assert taken == list(_frames_plainly(data[1:]))
    return f"{min(len(taken), 9)} {reader.at_boundary}"


def _frames_plainly(data: bytes) -> Iterator[bytes]:
    at = 0
    while len(data) - at >= _SIZE_BYTES:
        size = int.from_bytes(data[at : at + _SIZE_BYTES], signed=True)
        if at + _SIZE_BYTES + size > len(data):
            return
        yield data[at + _SIZE_BYTES : at + _SIZE_BYTES + size]
        at += _SIZE_BYTES + size


def _seed_frames() -> list[bytes]:
    some = [_sized(each) for each in list(seeds.request_frames())[:40]]
    return [bytes((n,)) + b"".join(some[n : n + 5]) for n in range(len(some))] + [b"\x06" + _sized(bytes(20_000))]


def _sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(_SIZE_BYTES) + frame


# --------------------------------------------------------------------------------- requests and their headers


def _feed_header(data: bytes) -> object:
    header, cursor = read_request_header(memoryview(data))
    assert write_request_header(header, flexible=False) == data[: cursor.at]
    if header.api_key == ApiKey.PRODUCE:
        return f"produce {header.api_version} {produce.is_answered(header.api_version, cursor)}"
    return f"{header.api_key} {header.api_version}" if 0 <= header.api_key < 100 else "other"


def _feed_fetch_request(data: bytes) -> object:
    header, cursor = read_request_header(memoryview(data))
    if not 0 <= header.api_version <= fetch.MAX_VERSION:
        return "no version"
    request = fetch.read_request(header, cursor)
    stride = request_layout(header.api_version).stride
    partitions = 0
    for section in request.sections:
        assert len(section.entries) % stride == 0
        partitions += len(section.entries) // stride
    assert partitions * 16 + len(request.forgotten) * 4 <= len(data)
    return f"{header.api_version} {min(partitions, 9)} {min(len(request.forgotten), 9)}"


def _seed_fetch_requests() -> list[bytes]:
    return [frame for frame in seeds.request_frames() if frame[:2] == b"\0\1"]


# --------------------------------------------------------------------------------------- answers of brokers


def _feed_fetch_response(data: bytes) -> object:
    version = _u8(data, 0) % (fetch.MAX_VERSION + 1)
    frame = memoryview(data)[1:]
    response = fetch.read_response(version, frame)
    assert response.record_bytes <= len(frame)
    if version >= 16:
        pieces = addresses.replace_addresses(ApiKey.FETCH, version, frame, _map_address)
        _check_size(pieces)
    return f"{version} {len(response.topics)} {response.redirects} {bool(response.endpoints)}"


def _check_size(pieces: Sequence[bytes | memoryview]) -> bytes:
    frame = b"".join(pieces)
    assert int.from_bytes(frame[:_SIZE_BYTES]) == len(frame) - _SIZE_BYTES
    return frame[_SIZE_BYTES:]


def _answer(body: bytes, *, flexible: bool) -> bytes:
    return bytes(4) + b"\0" * flexible + body


def _seed_fetch_responses() -> list[bytes]:
    made = []
    for version in seeds.versions(ApiKey.FETCH):
        for body in seeds.response_bodies(ApiKey.FETCH, version):
            made.append(bytes((version,)) + _answer(body, flexible=version >= 12))
    return made


_REWRITTEN: Final = [
    (key, version)
    for key, first in CARRIES_ADDRESSES.items()
    for version in seeds.versions(key)
    if version >= first
]


def _feed_addresses(data: bytes) -> object:
    key, version = _REWRITTEN[_u8(data, 0) % len(_REWRITTEN)]
    frame = memoryview(data)[1:]
    rewritten = _check_size(addresses.replace_addresses(key, version, frame, _map_address))
    assert rewritten[:4] == frame[:4]
    assert len(rewritten) <= 3 * len(frame) + 64
    return f"{key} {version} {len(rewritten) == len(frame)}"


def _seed_addresses() -> list[bytes]:
    made = []
    for number, (key, version) in enumerate(_REWRITTEN):
        flexible = messages.response_type(key, version).__header_schema__.__version__ > 0
        for body in seeds.response_bodies(key, version):
            made.append(bytes((number,)) + _answer(body, flexible=flexible))
    return made


def _feed_api_versions(data: bytes) -> object:
    version = _u8(data, 0) % (api_versions.MAX_VERSION + 1)
    frame = memoryview(data)[1:]
    _, body = api_versions.read_response(version, frame)
    offered = _check_size([api_versions.rewrite_response(version, frame)])
    assert len(offered) <= len(frame) + 64
    return f"{version} {min(len(body.api_keys), 9)} {len(offered) == len(frame)}"


def _seed_api_versions() -> list[bytes]:
    bodies = [(v, body) for v in range(5) for body in seeds.response_bodies(ApiKey.API_VERSIONS, v)]
    return [bytes((version,)) + _answer(body, flexible=False) for version, body in bodies]


def _feed_topology(data: bytes) -> object:
    version = _METADATA[_u8(data, 0) % len(_METADATA)]
    _, body = messages.read_response(messages.response_type(ApiKey.METADATA, version), memoryview(data)[1:])
    topology = Topology().with_metadata(body)
    return f"{version} {min(len(topology.brokers), 9)} {min(len(topology.topics), 9)}"


_METADATA: Final = [version for version in seeds.versions(ApiKey.METADATA) if version >= 4]


def _seed_topology() -> list[bytes]:
    made = []
    for number, version in enumerate(_METADATA):
        for body in seeds.response_bodies(ApiKey.METADATA, version):
            made.append(bytes((number,)) + _answer(body, flexible=version >= 9))
    return made


def _feed_entities(data: bytes) -> object:
    """Answers that Sidefetch itself asks for: kio reads them."""
    key, version = _ASKED[_u8(data, 0) % len(_ASKED)]
    kind = messages.response_type(key, version)
    correlation_id, body = messages.read_response(kind, memoryview(data)[1:])
    assert correlation_id == Cursor(data, 1).i32()
    return f"{key} {version} {len(messages.entity_bytes(body)) == len(data)}"


_ASKED: Final = [(ApiKey.FIND_COORDINATOR, 0), (ApiKey.LIST_OFFSETS, 1), (ApiKey.OFFSET_COMMIT, 2)]


def _seed_entities() -> list[bytes]:
    made = []
    for number, (key, version) in enumerate(_ASKED):
        for body in seeds.response_bodies(key, version):
            made.append(bytes((number,)) + _answer(body, flexible=False))
    return made


# -------------------------------------------------------------------------------------------------- records


def _feed_records(data: bytes) -> object:
    log = memoryview(data)
    at = 0
    kinds = []
    for entry in entries(log):
        assert entry.at == at
        assert entry.at < entry.end <= len(log)
        assert 0 <= entry.last_offset < 2**63
        at = entry.end
        kinds.append(f"{entry.magic}{entry.codec}{entry.is_control:d}")
        if entry.magic < 2:
            assert len(value_of(entry, log)) < entry.size
    return " ".join(kinds[:4])


def _feed_codecs(data: bytes) -> object:
    codec, magic = _u8(data, 0) % 6, _u8(data, 0) // 6 % 3
    plain = codecs.decompress(codec, memoryview(data)[1:], magic=magic, limit=_DECOMPRESSED)
    assert len(plain) <= max(_DECOMPRESSED, len(data))
    return f"{codec} {len(plain).bit_length()}"


def _seed_codecs() -> list[bytes]:
    made = []
    for codec in Codec:
        for plain in (b"", b"x", b"some more" * 50, bytes(60_000), bytes(300_000), bytes(range(256)) * 9):
            for magic in (0, 2):
                inside = bytes(codecs.compress(codec, plain, magic=magic))
                head = bytes((codec + 6 * magic,))
                made += [head + inside, head + inside + inside] if len(inside) < 60_000 else []
    return made


def _repaired(data: bytes) -> bytes:
    """Return the data with correct checksums, so that the code behind the check runs."""
    fixed = bytearray(data)
    at = 0
    while len(fixed) - at > 17:
        end = at + 12 + int.from_bytes(fixed[at + 8 : at + 12], signed=True)
        if not at + 26 <= end <= len(fixed):
            break
        if fixed[at + 16] == 2:
            struct.pack_into(">I", fixed, at + 17, crc32c(fixed[at + 21 : end]))
        else:
            struct.pack_into(">I", fixed, at + 12, crc32(fixed[at + 16 : end]))
        at = end
    return bytes(fixed)


_ABORTED: Final = ((), ((7, 0),), ((7, 5), (7, 8), (3, -1)), ((2**62, 2**63 - 1),))


def _feed_down(data: bytes) -> object:
    how, offset = _u8(data, 0), _u8(data, 1)
    target = ConversionTarget(
        how % 3,
        None if how & 64 else Codec.GZIP,
        Codec.LZ4 if how & 32 else Codec.GZIP,
        1024 if how & 16 else 128 * 1024,
        bool(how & 8),
        _DECOMPRESSED,
    )
    log = memoryview(_repaired(data[2:]) if offset % 8 else data[2:])
    at = (0, 5, 6, 8, 9, 2**31, 2**62, 1)[offset // 8 % 8]
    needed = needs_conversion(log, at, target)
    conversion = DownConversion(log, at, target, _ABORTED[offset // 64])
    outcome = conversion.begin()
    size = 0
    while (chunk := conversion.next_chunk()) is not None:
        assert chunk
        size += len(chunk)
    assert size == len(conversion) == (outcome.size if isinstance(outcome, Converted) else 0)
    # An inside may be small where it is compressed; uncompressed and re-framed, a record gains 27 bytes at most.
    assert size <= 8 * (len(log) + _DECOMPRESSED)
    return f"{target.magic} {needed} {type(outcome).__name__} {size.bit_length()} {conversion.counts.messages}"


def _seed_down() -> list[bytes]:
    hows = ((0, 8), (1, 8), (2, 8), (8 + 1, 9 + 64), (16 + 32, 9), (64 + 1, 16))
    return [bytes(how) + log for log in seeds.logs() for how in hows]


def _feed_up(data: bytes) -> object:
    how = _u8(data, 0)
    message_set = memoryview(_repaired(data[1:]) if how & 7 else data[1:])
    batches = to_batches(message_set, max_batch_bytes=(200, 1 << 20)[how >> 3 & 1])
    count = 0
    for each in batches:
        (entry,) = entries(memoryview(each))
        assert entry.magic == 2
        count += entry.records
    return f"{len(batches).bit_length()} {count}"


def _seed_up() -> list[bytes]:
    return [bytes((how,)) + each for each in (*seeds.message_sets(), seeds.logs()[2]) for how in (1, 9)]


def _on(module: ModuleType, feed: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """*feed* while the conversion uses *module*; short inputs, since it is slow."""

    def fed(data: bytes) -> object:
        with used(module):
            return feed(data[:4096])

    return fed


def _feed_kernels(data: bytes) -> object:
    """Compare the results and outputs of the compiled and the interpreted kernel."""
    log = memoryview(_repaired(data[1:]) if _u8(data, 0) & 7 else data[1:])[:2048]
    room = 4096 if _u8(data, 0) & 8 else 40
    reported = [list(_all_of(module, log, room)) for module in (kernel, _INTERPRETED)]
    assert reported[0] == reported[1]
    return " ".join(str(done[0].damage) for done in reported[0])


def _all_of(module: Any, log: memoryview, room: int) -> Iterator[tuple[Any, ...]]:
    def done(name: str, *arguments: Any, writes: bool = True) -> tuple[Any, ...]:
        out = memoryview(bytearray(room))
        reported = getattr(module, name)(*arguments, *([out] if writes else []))
        return reported, bytes(out[: reported.size]) if writes else b""

    for magic in (0, 1):
        yield done("convert_entries", log, 0, len(log), 6, magic, True)
        yield done("measure_entries", log, 0, len(log), 6, magic, False, True, writes=False)
        yield done("convert_records", log, 3, 0, 9, 0, 0, False, 0, magic, bool(magic))
        yield done("measure_messages", log, 0, len(log), magic, writes=False)
        yield done("raise_messages", log, 0, len(log), magic, 0, -1)
    yield done("convert_messages", log, 2)


def _seed_kernels() -> list[bytes]:
    logs = [b"\x09" + log for log in seeds.logs() if len(log) < 2000]
    return logs + [b"\x08" + log[61:] for log in seeds.logs() if len(log) < 2000]


_INTERPRETED: Final = load_interpreted()

_FRAME: Final[tuple[type[ProxyError], ...]] = (MalformedFrame,)
_RECORDS: Final[tuple[type[ProxyError], ...]] = (BadRecords,)

TARGETS: Final = (
    harness.Target("frames", _seed_frames, _feed_frames, _FRAME, 2),
    harness.Target("headers", lambda: list(seeds.request_frames()), _feed_header, _FRAME, 30),
    harness.Target("fetch-requests", _seed_fetch_requests, _feed_fetch_request, _FRAME, 20),
    harness.Target("fetch-responses", _seed_fetch_responses, _feed_fetch_response, _FRAME, 16),
    harness.Target("addresses", _seed_addresses, _feed_addresses, _FRAME, 6),
    harness.Target("api-versions", _seed_api_versions, _feed_api_versions, _FRAME, 3),
    harness.Target("topology", _seed_topology, _feed_topology, _FRAME, 4),
    harness.Target("entities", _seed_entities, _feed_entities, _FRAME, 3),
    harness.Target("records", lambda: list(seeds.logs()), _feed_records, _RECORDS, 8),
    harness.Target("codecs", _seed_codecs, _feed_codecs, _RECORDS, 6),
    harness.Target("down", _seed_down, _feed_down, (), 3),
    harness.Target("down-interpreted", _seed_down, _on(_INTERPRETED, _feed_down), (), 0.5, 2000),
    harness.Target("up", _seed_up, _feed_up, _RECORDS, 4),
    harness.Target("up-interpreted", _seed_up, _on(_INTERPRETED, _feed_up), _RECORDS, 0.5, 2000),
    harness.Target("kernels", _seed_kernels, _feed_kernels, (), 0.5, 4000),
)
