"""Codecs, in Kafka's framing; aiokafka and the codecs' own packages are the second opinion."""

import gzip
import random
import struct
import tracemalloc
import zlib
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.convert import codecs
from proxy.convert.codecs import compress, decompress
from proxy.errors import BadRecords, ErrorCode
from proxy.wire.records import Codec
from tests.convert.logs import compressed, decompressed
from tests.convert.strategies import changed
from tests.strategies import examples

_COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
_LARGE = random.Random(3).randbytes(100_000) + bytes(200_000) + b"abc" * 50_000

data = st.one_of(
    st.binary(max_size=300),
    st.integers(0, 200_000).map(lambda size: _LARGE[:size]),
    st.integers(0, 200_000).map(lambda size: bytes(size)),
)


@examples(60)
@given(data, st.sampled_from(list(Codec)), st.sampled_from([0, 1, 2]))
def test_reference_codecs_decompress_our_compressed_data(plain: bytes, codec: Codec, magic: int) -> None:
    written = bytes(compress(codec, plain, magic=magic))

    if plain or codec != Codec.SNAPPY:  # aiokafka takes a header without blocks for a block
        assert decompressed(codec, written, magic) == plain


@examples(60)
@given(data, st.sampled_from(list(Codec)), st.sampled_from([0, 1, 2]))
def test_data_of_reference_codecs_and_our_own_is_decompressed(plain: bytes, codec: Codec, magic: int) -> None:
    for written in (compressed(codec, plain), bytes(compress(codec, plain, magic=magic))):
        assert bytes(decompress(codec, memoryview(written), magic=magic)) == plain


@pytest.mark.parametrize("codec", _COMPRESSING)
@pytest.mark.parametrize("size", [1, 1000, len(_LARGE)])
def test_truncated_compressed_data_is_a_corrupt_message(codec: Codec, size: int) -> None:
    written = compressed(codec, _LARGE[:size])

    for cut in (1, 3, len(written) // 2, len(written)):
        with pytest.raises(BadRecords) as caught:
            decompress(codec, written[:-cut], magic=1)
        assert caught.value.code is ErrorCode.corrupt_message


@examples(100)
@given(st.sampled_from(_COMPRESSING), st.data())
def test_damage_is_an_error_or_other_bytes_but_nothing_else(codec: Codec, drawn: st.DataObject) -> None:
    written = drawn.draw(changed(compressed(codec, _LARGE[:3000])))

    try:
        plain = decompress(codec, written, magic=1, limit=1 << 20)
    except BadRecords:
        return
    assert len(plain) <= 1 << 20


@pytest.mark.parametrize("codec", _COMPRESSING)
def test_a_limit_is_kept_to_the_byte(codec: Codec) -> None:
    written = compressed(codec, _LARGE)

    assert bytes(decompress(codec, written, magic=1, limit=len(_LARGE))) == _LARGE
    with pytest.raises(BadRecords, match=f"to {len(_LARGE) - 1} bytes or less"):
        decompress(codec, written, magic=1, limit=len(_LARGE) - 1)


@pytest.mark.parametrize("codec", _COMPRESSING)
def test_bombs_take_no_more_memory_than_the_limit(codec: Codec) -> None:
    bomb = compressed(codec, bytes(100_000_000))

    with pytest.raises(BadRecords):
        decompress(codec, bomb, magic=1, limit=1 << 20)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_are_none_are_refused(codec: int) -> None:
    for work in (compress, decompress):
        with pytest.raises(BadRecords) as caught:
            work(codec, b"x", magic=1)
        assert caught.value.code is ErrorCode.unsupported_compression_type


def test_gzip_level_is_higher_for_data_that_is_stored_in_a_log() -> None:
    brief = compress(Codec.GZIP, _LARGE, magic=1)
    lasting = compress(Codec.GZIP, _LARGE, magic=2, is_brief=False)

    assert bytes(brief) == zlib.compress(_LARGE, 1, 31)
    assert bytes(lasting) == zlib.compress(_LARGE, 6, 31)


def test_gzip_members_are_joined_and_trailing_zeros_are_ignored() -> None:
    written = gzip.compress(b"a" * 100) + gzip.compress(b"b" * 100)

    assert decompress(Codec.GZIP, written, magic=1) == b"a" * 100 + b"b" * 100
    assert decompress(Codec.GZIP, written + b"\0\0", magic=1) == b"a" * 100 + b"b" * 100


class _Counting:
    """zlib, and how many bytes it was handed."""

    error = zlib.error

    def __init__(self) -> None:
        self.handed = 0

    def decompressobj(self, wbits: int) -> "_CountingMember":
        return _CountingMember(self, zlib.decompressobj(wbits))


class _CountingMember:
    def __init__(self, counting: _Counting, member: Any) -> None:
        self._counting = counting
        self._member = member

    def decompress(self, data: bytes, limit: int) -> bytes:
        self._counting.handed += len(data)
        return bytes(self._member.decompress(data, limit))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._member, name)


def test_many_gzip_members_are_not_each_handed_all_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may send a million of them in one message: with the square of their number, that takes hours."""
    counting = _Counting()
    monkeypatch.setattr(codecs, "zlib", counting)
    written = gzip.compress(b"a") * 20_000

    assert decompress(Codec.GZIP, written, magic=1) == b"a" * 20_000
    assert counting.handed < 300 * len(written)


@examples(60)
@given(st.lists(st.integers(0, 9000), min_size=1, max_size=6), st.binary(max_size=3))
def test_gzip_members_of_any_size_are_joined(sizes: list[int], behind: bytes) -> None:
    members = [_LARGE[size : 2 * size] for size in sizes]
    written = b"".join(map(gzip.compress, members)) + behind.replace(b"\x1f", b"")

    assert decompress(Codec.GZIP, written, magic=1) == b"".join(members)
    with pytest.raises(BadRecords):
        decompress(Codec.GZIP, written, magic=1, limit=sum(sizes) - 1)


def test_many_small_snappy_blocks_take_no_memory_of_their_own() -> None:
    framed = bytes(compress(Codec.SNAPPY, b"", magic=1)) + b"\0\0\0\1\0" * 20_000

    tracemalloc.start()
    assert decompress(Codec.SNAPPY, framed, magic=1) == b""
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000


def test_zlibs_own_format_is_no_gzip() -> None:
    with pytest.raises(BadRecords):
        decompress(Codec.GZIP, zlib.compress(b"a"), magic=1)


def test_snappy_is_read_without_framing_and_of_several_streams() -> None:
    raw = bytes(cramjam.snappy.compress_raw(_LARGE))
    framed = bytes(compress(Codec.SNAPPY, _LARGE, magic=1))

    assert bytes(decompress(Codec.SNAPPY, raw, magic=1)) == _LARGE
    assert bytes(decompress(Codec.SNAPPY, framed + framed, magic=1)) == _LARGE * 2


def test_snappy_blocks_are_of_32_kib() -> None:
    framed = bytes(compress(Codec.SNAPPY, bytes(100_000), magic=1))

    assert framed.startswith(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1")
    at, sizes = 16, []
    while at < len(framed):
        (size,) = struct.unpack_from(">i", framed, at)
        sizes.append(cramjam.snappy.decompress_raw_len(framed[at + 4 : at + 4 + size]))
        at += 4 + size
    assert sizes == [32768, 32768, 32768, 1696]


def test_zstd_frames_are_joined_with_or_without_a_size_and_a_checksum() -> None:
    streamed = cramjam.zstd.Compressor(3)
    streamed.compress(_LARGE[:5000])
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"hello"
    written = compressed(Codec.ZSTD, b"one") + skippable + bytes(streamed.finish())

    assert bytes(decompress(Codec.ZSTD, written, magic=2)) == b"one" + _LARGE[:5000]
