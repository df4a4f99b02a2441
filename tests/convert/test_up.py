"""Message sets of old producers, converted to batches by the rules of brokers."""

from collections.abc import Iterator, Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.convert import ConversionTarget, Converted, DownConversion, to_batches
from proxy.errors import BadRecords, ErrorCode
from proxy.wire.records import Codec, Entry, entries
from tests.convert.logs import Record, batch, message, messages_of, records_of, wrapper
from tests.convert.strategies import changed, message_sets, records
from tests.strategies import examples

MIB = 1 << 20


def up(message_set: bytes, max_batch_bytes: int = MIB) -> list[bytes]:
    return [bytes(each) for each in to_batches(memoryview(message_set), max_batch_bytes=max_batch_bytes)]


def refused(message_set: bytes) -> ErrorCode:
    with pytest.raises(BadRecords) as caught:
        up(message_set)
    return caught.value.code


def contents(found: Sequence[Record]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(each.time_ms, each.key, each.value) for each in found]


@examples(200)
@given(message_sets(), st.sampled_from([MIB, 2000, 300, 100, 1]))
def test_all_messages_arrive_in_order_whatever_their_offsets(
    given_set: tuple[bytes, tuple[Record, ...], int, int], max_batch_bytes: int
) -> None:
    data, sent, _, codec = given_set

    batches = up(data, max_batch_bytes)

    arrived = [records_of(each) for each in batches]
    assert contents([record for each in arrived for record in each]) == contents(sent)
    for written, inside in zip(batches, arrived, strict=True):
        assert [each.offset for each in inside] == list(range(len(inside)))
        assert len(written) <= max_batch_bytes or len(inside) == 1
        (header,) = entries(memoryview(written))
        assert (header.base_offset, header.attributes, header.producer_id) == (0, codec, -1)
    if max_batch_bytes == MIB:
        assert len(batches) == 1


@examples(100)
@given(records(0, most=10), st.sampled_from(list(Codec)), st.sampled_from([0, 1]))
def test_down_and_up_again_keeps_all_that_the_old_format_can_hold(
    sent: tuple[Record, ...], codec: Codec, magic: int
) -> None:
    log = batch(sent, codec=codec)
    conversion = DownConversion(memoryview(log), 0, ConversionTarget(magic, lz4_magic0=Codec.LZ4))
    assert isinstance(conversion.begin(), Converted)
    down = b"".join(bytes(chunk) for chunk in iter(conversion.next_chunk, None))

    (again,) = up(down)

    kept = [attrs.evolve(each, time_ms=each.time_ms if magic else -1) for each in sent]
    assert contents(records_of(again)) == contents(kept)
    assert again[22] == (Codec.GZIP if codec == Codec.ZSTD else codec)


@examples(200)
@given(st.data())
def test_damaged_sets_are_refused_or_had_their_end_cut_off(data: st.DataObject) -> None:
    whole, sent, _, _ = data.draw(message_sets())
    damaged = data.draw(changed(whole))

    try:
        batches = up(damaged)
    except BadRecords:
        return
    if damaged[16:17] != b"\2":  # sets that claim to be batches are passed on unchanged
        arrived = [record for each in batches for record in records_of(each)]
        assert contents(arrived) == contents(sent)[: len(arrived)]


def test_nothing_becomes_nothing() -> None:
    assert up(b"") == []
    assert up(message(Record(0), 1)[:-1]) == []


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_that_is_cut_off_is_left_out(magic: int) -> None:
    data = message(Record(0, value=b"a"), magic)

    for cut in range(1, len(data)):
        (only,) = up(data + data[:cut])
        assert [each.value for each in records_of(only)] == [b"a"]


def test_times_are_the_clients_own() -> None:
    (written,) = up(b"".join(message(Record(0, time), 1) for time in (5, -1, 2**62, 3)))
    (header,) = entries(memoryview(written))

    assert [each.time_ms for each in records_of(written)] == [5, -1, 2**62, 3]
    assert (header.base_ms, header.max_ms) == (5, 2**62)


def test_magic_0_has_no_times() -> None:
    (written,) = up(message(Record(0), 0) * 2)
    (header,) = entries(memoryview(written))

    assert (header.base_ms, header.max_ms) == (-1, -1)


@pytest.mark.parametrize("time", [-2, -(2**63)])
def test_times_that_are_none_are_refused(time: int) -> None:
    assert refused(message(Record(0, time), 1)) is ErrorCode.invalid_timestamp


@pytest.mark.parametrize("magic", [0, 1])
def test_the_bit_for_a_brokers_time_means_nothing(magic: int) -> None:
    (written,) = up(message(Record(0, 5), magic, is_append_time=True))

    assert [each.time_ms for each in records_of(written)] == [5 if magic else -1]
    assert written[22] == 0


def test_sets_of_several_magics_are_refused() -> None:
    old, new, newest = message(Record(0), 0), message(Record(0), 1), batch([Record(0)])

    for mixed in (old + new, new + old, old + newest, newest + old):
        assert refused(mixed) is ErrorCode.invalid_record


@pytest.mark.parametrize("at", [12, 17, 25, -1])
def test_a_wrong_checksum_is_corruption(at: int) -> None:
    plain = bytearray(message(Record(0, value=b"abc"), 1))
    plain[at] ^= 1
    packed = bytearray(wrapper([Record(0, value=b"abc")], 1, Codec.GZIP))
    packed[at] ^= 1

    assert refused(bytes(plain)) is ErrorCode.corrupt_message
    assert refused(bytes(packed)) is ErrorCode.corrupt_message


def test_a_wrong_checksum_inside_of_a_wrapper_is_corruption_too() -> None:
    inner = bytearray(message(Record(0, value=b"abc"), 1))
    inner[-1] ^= 1

    assert refused(wrapper([Record(0)], 1, Codec.GZIP, inner=bytes(inner))) is ErrorCode.corrupt_message


@pytest.mark.parametrize("size", [13, 0, -1, -(2**31)])
def test_a_size_that_cannot_be_is_corruption(size: int) -> None:
    data = bytearray(message(Record(0), 0))
    data[8:12] = size.to_bytes(4, signed=True)

    assert refused(bytes(data)) is ErrorCode.corrupt_message
    assert refused(message(Record(0), 0) + bytes(data)) is ErrorCode.corrupt_message


def test_compression_inside_of_compression_is_refused() -> None:
    inner = wrapper([Record(0)], 1, Codec.GZIP)

    assert refused(wrapper([Record(0)], 1, Codec.SNAPPY, inner=inner)) is ErrorCode.invalid_record


def test_wrappers_with_another_magic_or_nothing_inside_are_refused() -> None:
    assert refused(wrapper([Record(0)], 1, Codec.GZIP, inner=message(Record(0), 0))) is ErrorCode.invalid_record
    assert refused(wrapper([Record(0)], 1, Codec.GZIP, inner=b"")) is ErrorCode.invalid_record
    assert refused(message(Record(0, 1, None, None), 1, codec=Codec.GZIP)) is ErrorCode.invalid_record


def test_truncated_message_inside_a_wrapper_is_left_out() -> None:
    cut = message(Record(0, value=b"a"), 1) + message(Record(1), 1)[:-1]

    (written,) = up(wrapper([Record(0)], 1, Codec.GZIP, inner=cut))

    assert [each.value for each in records_of(written)] == [b"a"]


def test_invalid_compressed_data_is_a_corrupt_message() -> None:
    assert refused(message(Record(0, 1, None, b"abc"), 1, codec=Codec.GZIP)) is ErrorCode.corrupt_message


@pytest.mark.parametrize("codec", [4, 5, 7])
def test_codecs_that_messages_never_had_are_refused(codec: int) -> None:
    assert refused(message(Record(0, 1, None, b"abc"), 1, codec=codec)) is ErrorCode.invalid_record


def test_several_wrappers_and_messages_are_merged_in_the_last_ones_codec() -> None:
    sent = (
        wrapper([Record(0, 1, value=b"a"), Record(1, 2, value=b"b")], 1, Codec.GZIP)
        + message(Record(0, 3, value=b"c"), 1)
        + wrapper([Record(0, 4, value=b"d")], 1, Codec.LZ4)
    )

    (written,) = up(sent)

    assert [each.value for each in records_of(written)] == [b"a", b"b", b"c", b"d"]
    assert written[22] == Codec.LZ4


def test_lz4_of_magic_0_is_read_with_kafkas_old_checksum() -> None:
    (written,) = up(wrapper([Record(0, value=b"a"), Record(1, value=b"b")], 0, Codec.LZ4))

    assert [each.value for each in records_of(written)] == [b"a", b"b"]  # reads a batch's, which is the right one


def test_batches_of_mixed_up_clients_pass_as_they_are() -> None:
    first, second = batch([Record(0), Record(1)]), batch([Record(0)], codec=Codec.ZSTD)

    assert up(first + second + first[:-1]) == [first, second]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_record_larger_than_a_batch_may_be_travels_alone(codec: Codec) -> None:
    noise = bytes(range(256)) * 4
    sent = [Record(0, 1, value=b"a"), Record(1, 1, value=noise), Record(2, 1, value=b"b"), Record(3, 1)]
    data = wrapper(sent, 1, codec) if codec else b"".join(message(each, 1) for each in sent)

    batches = up(data, 120)

    assert [[len(each.value or b"") for each in records_of(written)] for written in batches][:2] == [[1], [1024]]
    assert sum(len(records_of(written)) for written in batches) == 4


def test_a_set_is_not_split_where_its_batch_is_just_as_large_as_it_may_be() -> None:
    data = b"".join(message(Record(k, 5, value=b"x" * 50), 1) for k in range(20))
    (whole,) = up(data)

    assert len(up(data, len(whole))) == 1
    assert len(up(data, len(whole) - 1)) == 2


def test_conversion_to_a_batch_and_back_keeps_magic_1_messages() -> None:
    data = b"".join(message(Record(k, k, b"k", b"v" * k), 1) for k in range(50))
    (written,) = up(data)
    conversion = DownConversion(memoryview(written), 0, ConversionTarget(1))
    conversion.begin()

    down = b"".join(bytes(chunk) for chunk in iter(conversion.next_chunk, None))

    assert down == data
    assert messages_of(down) == messages_of(data)


def test_large_records_cause_no_repeated_walks_over_later_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MB of small messages behind each of a hundred large ones would take minutes."""
    walked = 0

    def counted(log: memoryview, at: int = 0) -> Iterator[Entry]:
        nonlocal walked
        for entry in entries(log, at):
            walked += 1
            yield entry

    monkeypatch.setattr("proxy.convert.up.entries", counted)
    large, small = message(Record(0, 1, value=bytes(500)), 1), message(Record(0, 1), 1)

    assert len(up((large + small * 2) * 100, 200)) >= 200
    assert walked < 2000
