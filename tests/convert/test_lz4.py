"""LZ4 frames; the packages lz4 and xxhash are the second opinion."""

import lz4.frame
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from proxy.convert import lz4 as ours
from proxy.convert.codecs import decompress
from proxy.errors import BadRecords
from proxy.wire.records import Codec
from tests.strategies import examples

_TEXT = b"to be, or not to be: that is the question. " * 5000


@examples(100)
@given(st.binary(max_size=15))
def test_a_checksum_is_xxhashs_second_byte(covered: bytes) -> None:
    assert ours.checksum(covered) == bytes([xxhash.xxh32_intdigest(covered) >> 8 & 255])


def test_frames_are_as_kafka_writes_them() -> None:
    right = ours.compress(memoryview(_TEXT), is_broken=False)
    broken = ours.compress(memoryview(_TEXT), is_broken=True)

    assert right[:7] == bytes.fromhex("04224d18 6040 82")
    assert broken[6] == xxhash.xxh32_intdigest(right[:6]) >> 8 & 255 != right[6]
    assert (broken[:6], broken[7:]) == (right[:6], right[7:])


def test_frames_are_of_independent_blocks_without_a_checksum_of_the_content() -> None:
    about = lz4.frame.get_frame_info(ours.compress(memoryview(_TEXT), is_broken=False))

    assert (about["block_linked"], about["content_checksum"], about["block_checksum"]) == (False, False, False)
    assert about["block_size"] == 65536


def test_the_old_checksum_is_taken_inside_of_magic_0_alone() -> None:
    broken = ours.compress(memoryview(_TEXT), is_broken=True)

    assert bytes(decompress(Codec.LZ4, broken, magic=0)) == _TEXT
    for magic in (1, 2):
        with pytest.raises(BadRecords):
            decompress(Codec.LZ4, broken, magic=magic)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("store_size", [True, False])
@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
def test_frames_with_all_that_the_format_has_are_read(
    magic: int, store_size: bool, checksums: bool, linked: bool, block_size: int
) -> None:
    frame = lz4.frame.compress(
        _TEXT,
        block_size=block_size,
        block_linked=linked,
        content_checksum=checksums,
        block_checksum=checksums,
        store_size=store_size,
    )

    assert bytes(decompress(Codec.LZ4, frame, magic=magic)) == _TEXT


@pytest.mark.parametrize("frame", [b"", b"\x04\x22\x4d\x18", bytes.fromhex("04224d19604082"), bytes(40)])
def test_invalid_lz4_frame_raises_bad_records(frame: bytes) -> None:
    for magic in (0, 1):
        with pytest.raises(BadRecords):
            decompress(Codec.LZ4, frame, magic=magic)


@pytest.mark.parametrize("size", [1, 65_536, 65_537, 300_000])
def test_decompressed_bound_exceeds_the_size_by_at_most_64_kib(size: int) -> None:
    for plain in (bytes(size), (_TEXT * 2)[:size]):
        frame = memoryview(ours.compress(memoryview(plain), is_broken=False))

        assert len(plain) <= ours.decompressed_bound(frame) <= len(plain) + 65_536
