"""The messages that old clients read from a log, for every log, offset, target and chunk size."""

from collections.abc import Iterable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.convert import (
    CodecRefused,
    ConversionTarget,
    Converted,
    DamagedEntry,
    DownConversion,
    IncompleteEntry,
    NothingForClient,
    needs_conversion,
)
from proxy.wire.records import Codec
from tests.convert.logs import (
    Message,
    Record,
    batch,
    decompressed,
    entry_sizes,
    marker,
    message,
    messages_of,
    records_of,
    wrapper,
)
from tests.convert.strategies import Log, Part, logs
from tests.strategies import examples

V0, V1, V2 = ConversionTarget(0), ConversionTarget(1), ConversionTarget(2)
NEWEST = 2**63 - 1

targets = st.builds(
    ConversionTarget,
    magic=st.sampled_from([0, 1]),
    zstd=st.sampled_from([Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.NONE]),
    lz4_magic0=st.sampled_from([Codec.GZIP, Codec.LZ4]),
    chunk_bytes=st.sampled_from([1, 100, 1000, 128 * 1024]),
    committed=st.booleans(),
)


def convert(conversion: DownConversion) -> bytes:
    """Return all chunks, and check the size that was committed to."""
    chunks = []
    while (chunk := conversion.next_chunk()) is not None:
        assert len(chunk)
        chunks.append(bytes(chunk))
    data = b"".join(chunks)
    assert len(data) == len(conversion) == conversion.counts.out_bytes
    return data


def converted(
    log: bytes | memoryview, offset: int, target: ConversionTarget, aborted: Iterable[tuple[int, int]] = ()
) -> tuple[DownConversion, bytes]:
    """Return the conversion and its chunks; its outcome must be messages."""
    conversion = DownConversion(memoryview(log), offset, target, tuple(aborted))
    outcome = conversion.begin()
    assert outcome == Converted(len(conversion))
    return conversion, convert(conversion)


def outcome(log: bytes, offset: int, target: ConversionTarget) -> object:
    conversion = DownConversion(memoryview(log), offset, target)
    found = conversion.begin()
    if not isinstance(found, Converted):
        assert (len(conversion), conversion.next_chunk()) == (0, None)
    return found


def seen(part: Part, target: ConversionTarget) -> list[Message]:
    """Return the messages that a client of *target* reads from an entry."""
    if target.committed and part.is_aborted:
        return []
    magic = min(part.magic, target.magic)
    codec = part.codec
    if part.magic > target.magic:
        codec = target.codec(codec) or Codec.NONE
    found = []
    for each in part.records:
        time_ms = each.time_ms if part.append_ms is None else part.append_ms
        is_append = part.append_ms is not None and magic == 1
        found.append(Message(each.offset, time_ms if magic else -1, each.key, each.value, codec, magic, is_append))
    return found


@examples(300)
@given(logs(), targets, st.data())
def test_a_client_sees_all_that_its_format_can_hold(
    log: Log, target: ConversionTarget, data: st.DataObject
) -> None:
    offset = data.draw(st.integers(log.parts[0].last_offset, log.last_offset))
    wanted = [each for part in log.parts for each in seen(part, target) if each.offset >= offset]
    conversion = DownConversion(log.data, offset, target, log.aborted)
    found = conversion.begin()

    if not wanted:
        assert found == NothingForClient(log.last_offset + 1)
        return
    assert isinstance(found, Converted)
    message_set = convert(conversion)
    messages = messages_of(message_set)
    ahead = [each for each in messages if each.offset >= offset]
    assert ahead == wanted[: len(ahead)]
    assert ahead
    assert messages[-1].offset >= offset
    if not (conversion.counts.cut_bytes or conversion.counts.unread_bytes):
        assert ahead == wanted
    assert not [each for each in messages if each.offset < offset and not each.codec]


@examples(200)
@given(logs(), targets, st.integers(1, 2_000))
def test_output_keeps_the_limit_unless_it_is_one_entry_and_loses_no_message(
    log: Log, target: ConversionTarget, limit_bytes: int
) -> None:
    whole, limited = (DownConversion(log.data, 0, target, log.aborted) for _ in range(2))
    first = whole.begin()
    found = limited.begin(limit_bytes)

    assert isinstance(found, Converted) == isinstance(first, Converted)
    if isinstance(found, Converted):
        messages = messages_of(convert(limited))
        if found.size > limit_bytes:
            shorter = DownConversion(limited.source, 0, target, log.aborted)
            assert shorter.begin(1) == found, "more than the first entry with a message"
        assert messages == messages_of(convert(whole))[: len(messages)]


@examples(100)
@given(logs(), targets)
def test_the_size_of_chunks_changes_no_message(log: Log, target: ConversionTarget) -> None:
    offset = log.parts[0].last_offset
    sets = []
    for chunk_bytes in (1, 200, 1 << 20):
        conversion = DownConversion(log.data, offset, attrs.evolve(target, chunk_bytes=chunk_bytes), log.aborted)
        if isinstance(conversion.begin(), Converted):
            sets.append(messages_of(convert(conversion)))

    longest = max(sets, key=len, default=[])
    assert all(each == longest[: len(each)] for each in sets)


@examples(100)
@given(logs(), targets, st.data())
def test_dropped_output_is_converted_again_to_the_same(
    log: Log, target: ConversionTarget, data: st.DataObject
) -> None:
    offset = data.draw(st.integers(log.parts[0].last_offset, log.last_offset))
    kept, dropped = (DownConversion(log.data, offset, target, log.aborted) for _ in range(2))
    if not isinstance(kept.begin(), Converted):
        return

    dropped.begin()
    dropped.drop_output()

    assert dropped.held_bytes == 0
    assert convert(dropped) == convert(kept)
    assert dropped.counts == kept.counts


def test_dropped_output_begins_again_with_its_first_message_after_compacted_ones() -> None:
    compacted = batch([Record(0, 0, None, None)], last_offset=3)
    log = memoryview(compacted + batch([Record(4, 0, b"k", b"v")], codec=Codec.GZIP))
    conversion = DownConversion(log, 3, attrs.evolve(V0, chunk_bytes=len(log)))
    assert isinstance(conversion.begin(), Converted)

    conversion.drop_output()

    assert [each.offset for each in messages_of(convert(conversion))] == [4]


@examples(100)
@given(logs(old=False), st.sampled_from([V0, V1]))
def test_nothing_is_wasted_where_nothing_is_compressed(log: Log, target: ConversionTarget) -> None:
    if any(part.codec for part in log.parts) or not any(part.records for part in log.parts):
        return
    conversion = DownConversion(log.data, 0, target)
    conversion.begin()
    convert(conversion)

    assert conversion.counts.padding_bytes == conversion.counts.cut_bytes == conversion.counts.unread_bytes == 0


@examples(100)
@given(logs(), st.data())
def test_log_that_needs_no_conversion_is_readable_in_the_target_format(log: Log, data: st.DataObject) -> None:
    target = data.draw(st.sampled_from([V0, V1, V2]))
    offset = data.draw(st.integers(log.parts[0].last_offset, log.last_offset))
    if needs_conversion(log.data, offset, target):
        return
    if target.magic == 2:
        assert not any(part.magic == 2 and part.codec == Codec.ZSTD for part in log.parts)
    else:
        assert all(part.magic <= target.magic for part in log.parts)
        assert messages_of(bytes(log.data))[-1].offset >= offset


@examples(100)
@given(logs(), st.sampled_from([Codec.GZIP, Codec.LZ4, Codec.SNAPPY, Codec.NONE]))
def test_conversion_to_magic_2_changes_only_zstd_batches(log: Log, codec: Codec) -> None:
    target = attrs.evolve(V2, zstd=codec)
    parts = [part for part in log.parts if part.magic == 2]
    if not any(part.codec == Codec.ZSTD for part in parts):
        return
    source = b"".join(part.data for part in parts)

    conversion, data = converted(source, parts[0].last_offset, target)

    if not (conversion.counts.cut_bytes or conversion.counts.unread_bytes):
        held = data[: sum(entry_sizes(data))]
        assert len(held) + conversion.counts.padding_bytes == len(data)
        assert [bytes(each)[:8] for each in split(held)] == [part.data[:8] for part in parts]
        assert all(each[22] & 7 != Codec.ZSTD for each in split(held))
        for part, each in zip(parts, split(held), strict=True):
            if part.codec != Codec.ZSTD:
                assert each == part.data


def split(log: bytes) -> list[bytes]:
    found, at = [], 0
    for size in entry_sizes(log):
        found.append(log[at : at + size])
        at += size
    return found


# --- one rule each -----------------------------------------------------------------------------------------------


def simple(first: int, last: int, **options: object) -> bytes:
    return batch([Record(each, 1000 + each, b"k", b"v%d" % each) for each in range(first, last + 1)], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("target", [V0, V1])
@pytest.mark.parametrize("codec", list(Codec))
def test_headers_vanish_and_all_else_stays(target: ConversionTarget, codec: Codec) -> None:
    log = batch(
        [
            Record(3, 17, b"key", b"value", ((b"h", b"x"), (b"i", None))),
            Record(5, 18, None, None),
            Record(9, 12, b"", b""),
        ],
        codec=codec,
    )

    conversion, data = converted(log, 3, target)

    found = [(each.offset, each.time_ms, each.key, each.value) for each in messages_of(data)]
    times = (17, 18, 12) if target is V1 else (-1, -1, -1)
    assert found == [(3, times[0], b"key", b"value"), (5, times[1], None, None), (9, times[2], b"", b"")]
    assert conversion.counts.headers_dropped == 2
    assert conversion.counts.messages == 3


def test_offsets_with_gaps_across_batches_survive() -> None:
    log = batch([Record(0), Record(3)]) + batch([Record(10), Record(12)], codec=1) + batch([Record(50)], codec=3)

    _, data = converted(log, 0, V1)

    assert [each.offset for each in messages_of(data)] == [0, 3, 10, 12, 50]


def test_offsets_inside_wrappers_begin_at_0_in_magic_1_and_are_absolute_in_magic_0() -> None:
    log = batch([Record(70), Record(75)], codec=Codec.GZIP, base_offset=60)

    for target, inside in ((V0, [70, 75]), (V1, [0, 5])):
        (outer,) = split(converted(log, 70, target)[1])
        plain = decompressed(Codec.GZIP, outer[34 if target is V1 else 26 :], target.magic)
        assert int.from_bytes(outer[:8]) == 75
        assert [int.from_bytes(each[:8]) for each in split(plain)] == inside


def test_readers_of_batches_get_gzip_for_zstd_and_all_else_as_it_was() -> None:
    zstd = batch([Record(3, 5, b"k", b"v", ((b"h", b"x"),))], codec=Codec.ZSTD, producer_id=8)
    log = simple(0, 2) + zstd + marker(4, 8, commits=True)

    _, data = converted(log, 0, V2)

    first, second, third = split(data)
    assert (first, third) == (simple(0, 2), marker(4, 8, commits=True))
    assert (second[12:16], second[23:61]) == (zstd[12:16], zstd[23:61])
    assert second[22] == zstd[22] & ~7 | Codec.GZIP
    assert records_of(second) == records_of(zstd)


@pytest.mark.parametrize("target", [V0, V1])
def test_range_with_only_a_marker_has_nothing_for_the_client(target: ConversionTarget) -> None:
    assert outcome(marker(7, 1, commits=True), 7, target) == NothingForClient(8)


def test_markers_and_emptied_batches_are_skipped_up_to_the_last_ones_end() -> None:
    emptied = batch([], base_offset=8, last_offset=19, records_bytes=b"")

    assert outcome(marker(7, 1, commits=True) + emptied, 7, V1) == NothingForClient(20)


def test_a_compressed_batch_with_nothing_left_at_the_offset_is_skipped() -> None:
    log = batch([Record(3), Record(4)], codec=Codec.GZIP, last_offset=9)

    assert outcome(log, 5, V1) == NothingForClient(10)
    assert [each.offset for each in messages_of(converted(log, 4, V1)[1])] == [3, 4]


@pytest.mark.parametrize("target", [V0, V1])
def test_one_batch_that_is_cut_off_is_no_batch(target: ConversionTarget) -> None:
    whole = simple(0, 4)

    for size in (0, 1, 11, 12, 16, 17, 18, 60, 61, len(whole) - 1):
        assert outcome(whole[:size], 0, target) == IncompleteEntry()


def test_only_older_entries_are_no_progress() -> None:
    assert outcome(simple(0, 4), 5, V1) == IncompleteEntry()


def test_a_tail_that_is_cut_off_counts_for_nothing() -> None:
    whole, cut = converted(simple(0, 4), 0, V1)[1], converted(simple(0, 4) + simple(5, 9)[:-1], 0, V1)[1]

    assert whole == cut


def test_messages_of_an_older_format_among_batches_stay_as_they_are() -> None:
    old = message(Record(0, -1, b"k", b"v"), 0)
    older = wrapper([Record(1), Record(2)], 1, Codec.GZIP)
    log = old + older + simple(3, 4)

    conversion, data = converted(log, 0, V1)

    assert data.startswith(old + older)
    assert [each.magic for each in messages_of(data)] == [0, 1, 1, 1, 1]
    assert conversion.counts.messages == 2


def test_magic_1_messages_become_magic_0_for_magic_0_clients() -> None:
    log = message(Record(0, 5), 1) + wrapper([Record(1), Record(4)], 1, Codec.SNAPPY) + simple(5, 5)

    messages = messages_of(converted(log, 0, V0)[1])

    assert [(each.offset, each.magic, each.codec) for each in messages] == [
        (0, 0, Codec.NONE),
        (1, 0, Codec.SNAPPY),
        (4, 0, Codec.SNAPPY),
        (5, 0, Codec.NONE),
    ]


def test_copied_entries_are_views_of_the_source() -> None:
    log = memoryview(message(Record(0), 1) + message(Record(1), 1) + simple(2, 2))
    conversion = DownConversion(log, 0, V1)
    conversion.begin()

    chunk = conversion.next_chunk()

    assert isinstance(chunk, memoryview)
    assert chunk.obj is log.obj
    assert len(chunk) == 2 * 34


def test_times_of_clients_and_brokers_stand_side_by_side() -> None:
    log = simple(0, 1) + simple(2, 3, append_ms=77) + simple(4, 4, append_ms=78, codec=Codec.GZIP)

    messages = messages_of(converted(log, 0, V1)[1])

    assert [(each.time_ms, each.is_append_time) for each in messages] == [
        (1000, False),
        (1001, False),
        (77, True),
        (77, True),
        (78, True),
    ]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_times_below_minus_one_are_none(codec: Codec) -> None:
    log = batch([Record(0, -5), Record(1, 3), Record(2, -(2**63))], codec=codec)

    assert [each.time_ms for each in messages_of(converted(log, 0, V1)[1])] == [-1, 3, -1]


@pytest.mark.parametrize("target", [V0, V1])
def test_uncompressed_sets_start_at_the_offset_and_compressed_ones_at_their_batch(target: ConversionTarget) -> None:
    plain = simple(0, 9) + simple(10, 24)

    at_3 = messages_of(converted(plain, 3, target)[1])
    at_10 = messages_of(converted(simple(10, 24), 10, target)[1])
    packed = messages_of(converted(simple(0, 9, codec=Codec.GZIP) + simple(10, 24), 3, target)[1])

    assert [each.offset for each in at_3] == list(range(3, 25))
    assert [each.offset for each in at_10] == list(range(10, 25))
    assert [each.offset for each in packed] == list(range(25))


def test_refused_zstd_in_the_first_data_batch_is_reported_with_its_offset() -> None:
    refusing = attrs.evolve(V1, zstd=None)

    assert outcome(simple(5, 7, codec=Codec.ZSTD), 5, refusing) == CodecRefused(5)
    assert outcome(marker(4, 1, commits=True) + simple(5, 7, codec=Codec.ZSTD), 4, refusing) == CodecRefused(5)
    assert outcome(simple(5, 7, codec=Codec.ZSTD), 5, attrs.evolve(V2, zstd=None)) == CodecRefused(5)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_zstd_that_is_refused_later_ends_the_set_before_it(magic: int, codec: Codec) -> None:
    log = simple(0, 4, codec=codec) + simple(5, 7, codec=Codec.ZSTD) + simple(8, 9)
    target = ConversionTarget(magic, zstd=None)

    conversion, data = converted(log, 0, target)

    found = messages_of(data) if magic < 2 else records_of(data)
    assert [each.offset for each in found] == [0, 1, 2, 3, 4]
    assert conversion.counts.padding_bytes == 0


def test_lz4_becomes_gzip_in_magic_0_unless_the_target_keeps_lz4() -> None:
    log = simple(0, 4, codec=Codec.LZ4)

    assert {each.codec for each in messages_of(converted(log, 0, V0)[1])} == {Codec.GZIP}
    assert {each.codec for each in messages_of(converted(log, 0, V1)[1])} == {Codec.LZ4}
    kept = attrs.evolve(V0, lz4_magic0=Codec.LZ4)
    assert {each.codec for each in messages_of(converted(log, 0, kept)[1])} == {Codec.LZ4}


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("at", [22, 30, 61, -1])
def test_a_damaged_batch_never_becomes_a_message(codec: Codec, at: int) -> None:
    damaged = bytearray(simple(5, 9, codec=codec))
    damaged[at] ^= 16

    found = outcome(bytes(damaged), 5, V1)

    assert isinstance(found, DamagedEntry)
    assert found.offset == 5
    assert "checksum" in found.why


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_damaged_batch_ends_the_set_and_is_reported_at_its_own_offset(codec: Codec, chunk_bytes: int) -> None:
    bad = bytearray(simple(5, 9, codec=codec))
    bad[-1] ^= 1
    log = simple(0, 4, codec=codec) + bytes(bad) + simple(10, 14, codec=codec)

    _, data = converted(log, 0, attrs.evolve(V1, chunk_bytes=chunk_bytes))

    assert [each.offset for each in messages_of(data)] == [0, 1, 2, 3, 4]
    assert isinstance(outcome(log[len(simple(0, 4, codec=codec)) :], 5, V1), DamagedEntry)


@pytest.mark.parametrize("size", [0, 13, -1, -(2**31)])
def test_a_size_that_cannot_be_is_damage(size: int) -> None:
    damaged = simple(5, 9)[:8] + size.to_bytes(4, signed=True) + simple(5, 9)[12:]

    assert isinstance(outcome(damaged, 5, V1), DamagedEntry)
    _, data = converted(simple(0, 4) + damaged, 0, V1)
    assert [each.offset for each in messages_of(data)] == [0, 1, 2, 3, 4]


def test_a_batch_that_decompresses_to_too_much_is_damaged() -> None:
    log = batch([Record(0, value=bytes(10_000))], codec=Codec.GZIP)

    found = outcome(log, 0, attrs.evolve(V1, decompressed_bytes=5000))

    assert isinstance(found, DamagedEntry)
    assert "5000 bytes" in found.why


def test_a_batch_of_records_that_become_messages_of_many_times_their_size_is_damaged() -> None:
    """Seven bytes of nothing are 34 as a message."""
    log = batch([Record(k, 0) for k in range(300)], codec=Codec.GZIP)

    found = outcome(log, 0, attrs.evolve(V1, decompressed_bytes=3000))

    assert isinstance(found, DamagedEntry)
    assert "300 messages may come to" in found.why
    assert isinstance(outcome(log, 0, attrs.evolve(V1, decompressed_bytes=6000)), Converted)


# --- isolation ---------------------------------------------------------------------------------------------------


def test_aborted_records_are_left_out_for_read_committed_clients() -> None:
    log = (
        simple(0, 1, producer_id=1)
        + simple(2, 3, producer_id=2)
        + marker(4, 1, commits=False)
        + simple(5, 6, producer_id=1)
        + marker(7, 2, commits=True)
        + marker(8, 1, commits=True)
        + simple(9, 9)
    )
    committed = attrs.evolve(V1, committed=True)

    conversion, data = converted(log, 0, committed, [(1, 0)])
    everything = messages_of(converted(log, 0, V1, [(1, 0)])[1])

    assert [each.offset for each in messages_of(data)] == [2, 3, 5, 6, 9]
    assert [each.offset for each in everything] == [0, 1, 2, 3, 5, 6, 9]
    assert conversion.counts.aborted_records == 2


def test_aborted_records_stay_left_out_where_all_is_converted_again() -> None:
    log = simple(0, 1, producer_id=1) + marker(2, 1, commits=False) + simple(3, 4, codec=Codec.GZIP)
    conversion = DownConversion(memoryview(log), 0, attrs.evolve(V1, committed=True), [(1, 0)])
    conversion.begin()

    conversion.drop_output()

    assert [each.offset for each in messages_of(convert(conversion))] == [3, 4]


def test_a_range_of_aborted_records_is_skipped() -> None:
    log = simple(0, 4, producer_id=1) + marker(5, 1, commits=False)
    conversion = DownConversion(memoryview(log), 2, attrs.evolve(V0, committed=True), [(1, 0)])

    assert conversion.begin() == NothingForClient(6)


# --- sizes -------------------------------------------------------------------------------------------------------


def test_a_set_of_one_message_is_never_cut_however_much_it_grows() -> None:
    for codec in Codec:
        log = batch([Record(0, value=b"")], codec=codec)
        conversion, data = converted(log, 0, V1)

        assert len(messages_of(data)) == 1
        assert conversion.counts.cut_bytes == 0


def test_rest_of_an_estimated_size_is_padded_with_an_incomplete_message() -> None:
    big = [batch([Record(k, 5, value=bytes(9000))], codec=Codec.GZIP, base_offset=k) for k in range(20)]
    log = b"".join(big)
    log += simple(20, 21, codec=Codec.GZIP)[:-1] + b"\x7f"  # damaged, so that there is room left
    conversion, data = converted(log, 0, attrs.evolve(V1, chunk_bytes=100))
    rest = data[sum(entry_sizes(data)) :]

    assert len(messages_of(data)) == 20
    assert conversion.counts.padding_bytes == len(rest) > 12
    assert int.from_bytes(rest[:8], signed=True) == -1
    assert int.from_bytes(rest[8:12]) > len(rest)
    assert not any(rest[12:])


def test_bytes_beyond_an_estimated_size_are_counted_as_unread() -> None:
    first = batch([Record(0, 5, headers=((b"h", bytes(range(256)) * 8),))], codec=Codec.GZIP)  # becomes very small
    log = first + b"".join(simple(k, k, codec=Codec.GZIP) for k in range(1, 40))

    conversion, data = converted(log, 0, attrs.evolve(V1, chunk_bytes=100))

    assert 0 < len(messages_of(data)) < 40
    assert conversion.counts.unread_bytes > 0


def test_markers_behind_the_last_messages_are_not_unread() -> None:
    log = simple(0, 4, producer_id=1) + marker(5, 1, commits=True)

    conversion, _ = converted(log, 0, V1)

    assert conversion.counts.unread_bytes == 0
    assert conversion.counts.source_bytes == len(log)


def test_chunk_size_stays_near_the_requested_chunk_bytes() -> None:
    log = b"".join(simple(10 * k, 10 * k + 9) for k in range(100))
    conversion = DownConversion(memoryview(log), 0, attrs.evolve(V1, chunk_bytes=1000))
    conversion.begin()

    sizes = []
    while (chunk := conversion.next_chunk()) is not None:
        sizes.append(len(chunk))
    assert max(sizes) < 4000
    assert len(sizes) > 15
