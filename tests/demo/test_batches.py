"""Batches as Kafka's clients and brokers read them; kio's reader is the oracle."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch

from proxy.demo.batches import BadBatch, DemoRecord, decode_records, encode_batch, split_batches

_DATA = st.none() | st.binary(max_size=200)
_HEADERS = st.lists(st.tuples(st.text(max_size=8), _DATA), max_size=3).map(tuple)
_RECORDS = st.builds(
    DemoRecord,
    value=_DATA,
    key=_DATA,
    headers=_HEADERS,
    timestamp_ms=st.integers(0, 2**41),
)


@given(st.lists(_RECORDS, min_size=1, max_size=5))
def test_records_come_back_as_they_were(records: list[DemoRecord]) -> None:
    (batch,) = split_batches(encode_batch(records))

    read = list(decode_records([batch]))

    assert [(each.key, each.value, each.headers, each.timestamp_ms) for each in read] == [
        (each.key, each.value, each.headers, each.timestamp_ms) for each in records
    ]
    assert [each.offset for each in read] == list(range(len(records)))
    assert batch.max_timestamp_ms == max(each.timestamp_ms for each in records)


def test_kio_reads_the_same() -> None:
    records = [
        DemoRecord(b"v", b"k", (("h", b"x"),), timestamp_ms=1_700_000_000_000),
        DemoRecord(None, timestamp_ms=5),
    ]

    batch, size = read_batch(encode_batch(records), 0)

    assert size == len(encode_batch(records))
    assert [(each.key, each.value) for each in batch.records] == [(b"k", b"v"), (None, None)]
    assert [(header.key, header.value) for header in batch.records[0].headers] == [(b"h", b"x")]


def test_a_placed_batch_keeps_its_checksum() -> None:
    (batch,) = split_batches(encode_batch([DemoRecord(b"a"), DemoRecord(b"b")]))

    placed = batch.with_offset(base_offset=40, leader_epoch=3)

    assert (placed.base_offset, placed.last_offset) == (40, 41)
    assert list(split_batches(placed.data)) == [placed]
    assert [each.offset for each in decode_records([placed])] == [40, 41]
    assert int.from_bytes(placed.data[12:16], "big") == 3


def test_batches_in_a_row_are_split() -> None:
    batches = list(split_batches(encode_batch([DemoRecord(b"a")]) + encode_batch([DemoRecord(b"b")])))

    assert [each.value for each in decode_records(batches)] == [b"a", b"b"]


@pytest.mark.parametrize("cut", [1, 30, 60, 61])
def test_a_batch_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(BadBatch):
        list(split_batches(encode_batch([DemoRecord(b"a")])[:cut]))


def test_a_changed_byte_is_refused() -> None:
    data = bytearray(encode_batch([DemoRecord(b"a")]))
    data[-1] ^= 1

    with pytest.raises(BadBatch, match="checksum"):
        list(split_batches(bytes(data)))


def test_an_older_format_is_refused() -> None:
    data = bytearray(encode_batch([DemoRecord(b"a")]))
    data[16] = 1

    with pytest.raises(BadBatch, match="magic 1"):
        list(split_batches(bytes(data)))


def test_a_size_that_cannot_be_is_refused() -> None:
    data = bytearray(encode_batch([DemoRecord(b"a")]))
    data[8:12] = (3).to_bytes(4, "big")

    with pytest.raises(BadBatch, match="length"):
        list(split_batches(bytes(data)))
