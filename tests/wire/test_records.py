"""Entries of a log, by their headers."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import BadRecords, ErrorCode
from proxy.wire.records import Codec, entries, value_of
from tests.convert.logs import Record, batch, marker, message, wrapper
from tests.convert.strategies import Log, changed, logs
from tests.strategies import examples


@examples(100)
@given(logs())
def test_every_complete_entry_is_found(log: Log) -> None:
    found = list(entries(log.data))

    assert [bytes(log.data[each.at : each.end]) for each in found] == [part.data for part in log.parts]
    assert [each.last_offset for each in found] == [part.last_offset for part in log.parts]
    assert [each.magic for each in found] == [part.magic for part in log.parts]
    assert [each.codec for each in found] == [part.codec for part in log.parts]
    check(log.data)


@examples(200)
@given(logs(), st.data())
def test_damage_is_an_error_or_fewer_entries_and_nothing_beyond_the_end(log: Log, data: st.DataObject) -> None:
    damaged = memoryview(data.draw(changed(bytes(log.data))))
    at = 0

    with suppress(BadRecords):
        for each in entries(damaged):
            assert at == each.at < each.end <= len(damaged)
            assert 0 <= each.base_offset <= each.last_offset < 2**63
            at = each.end


def test_batch_header_fields_are_decoded() -> None:
    data = batch([Record(5, 100), Record(8, 90)], codec=Codec.LZ4, append_ms=300, producer_id=4)
    (found,) = entries(memoryview(data))

    assert (found.base_offset, found.last_offset, found.records, found.size) == (5, 8, 2, len(data))
    assert (found.base_ms, found.max_ms, found.producer_id) == (100, 300, 4)
    assert (found.codec, found.is_append_time, found.is_transactional, found.is_control) == (3, True, True, False)
    (end,) = entries(memoryview(marker(9, 4, commits=True)))
    assert (end.is_transactional, end.is_control, end.is_append_time) == (True, True, False)


def test_message_header_fields_are_decoded() -> None:
    old, new = entries(memoryview(message(Record(3), 0) + message(Record(4, 77), 1, is_append_time=True)))

    assert (old.magic, old.base_offset, old.last_offset, old.max_ms, old.is_append_time) == (0, 3, 3, -1, False)
    assert (new.magic, new.base_offset, new.last_offset, new.max_ms, new.is_append_time) == (1, 4, 4, 77, True)
    assert (new.is_control, new.is_transactional) == (False, False)


def check(log: memoryview) -> None:
    for each in entries(log):
        each.verify_checksum(log)


@pytest.mark.parametrize("data", [batch([Record(0, 1, b"k", b"v")]), message(Record(0, 1, b"k", b"v"), 1)])
def test_every_byte_that_a_checksum_covers_is_looked_at(data: bytes) -> None:
    covered = 21 if data[16] == 2 else 17
    for at in range(covered, len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 64
        with pytest.raises(BadRecords):
            check(memoryview(damaged))


@pytest.mark.parametrize("magic", [3, 4, 127])
def test_formats_that_are_none_are_corruption(magic: int) -> None:
    data = bytearray(batch([Record(6)]))
    data[16] = magic

    with pytest.raises(BadRecords, match=f"magic {magic}") as caught:
        list(entries(memoryview(data)))
    assert (caught.value.offset, caught.value.code) == (6, ErrorCode.corrupt_message)


@pytest.mark.parametrize(
    ("at", "value"),
    [(0, -1), (8, 48 - 12), (23, -1), (57, -1)],
    ids=["base offset", "size", "last offset delta", "count"],
)
def test_impossible_header_values_raise_bad_records(at: int, value: int) -> None:
    data = bytearray(batch([Record(6, value=bytes(100))]))
    data[at : at + (8 if at == 0 else 4)] = value.to_bytes(8 if at == 0 else 4, signed=True)

    with pytest.raises(BadRecords):
        list(entries(memoryview(data)))


def test_offsets_beyond_the_last_are_corruption() -> None:
    data = bytearray(batch([Record(0), Record(1)]))
    data[:8] = (2**63 - 1).to_bytes(8)

    with pytest.raises(BadRecords):
        list(entries(memoryview(data)))


def test_a_value_is_found_behind_a_key() -> None:
    data = memoryview(message(Record(0, 1, b"key", b"value"), 1) + message(Record(1, 1, None, b"other"), 0))

    assert [bytes(value_of(each, data)) for each in entries(data)] == [b"value", b"other"]


def test_a_value_that_is_null_is_empty() -> None:
    data = memoryview(message(Record(0, 1, b"k", None), 1))

    (found,) = entries(data)

    assert len(value_of(found, data)) == 0


@pytest.mark.parametrize(("at", "value"), [(26, 5), (26, -2), (30, 0), (30, 7), (30, -1), (26, 2**31 - 1)])
def test_a_value_that_does_not_fit_is_corruption(at: int, value: int) -> None:
    data = bytearray(message(Record(0, 1, None, b"value"), 1))
    data[at : at + 4] = value.to_bytes(4, signed=True)
    (found,) = entries(memoryview(data))

    with pytest.raises(BadRecords):
        value_of(found, memoryview(data))


def test_a_wrappers_offset_is_its_last_messages() -> None:
    (found,) = entries(memoryview(wrapper([Record(3), Record(9)], 1, Codec.GZIP)))

    assert (found.base_offset, found.last_offset) == (9, 9)
