"""The records of one partition."""

from proxy.demo.batches import DemoRecord, decode_records, encode_batch, split_batches
from proxy.demo.log import PartitionLog


def append(log: PartitionLog, *values: bytes, at_ms: int = 0, epoch: int = 0) -> int:
    (batch,) = split_batches(encode_batch([DemoRecord(value, timestamp_ms=at_ms) for value in values]))
    return log.append(batch, epoch)


def values(data: bytes) -> list[bytes | None]:
    return [record.value for record in decode_records(split_batches(data))]


def test_offsets_follow_each_other() -> None:
    log = PartitionLog()

    assert [append(log, b"a", b"b"), append(log, b"c"), log.start, log.end] == [0, 2, 0, 3]


def test_reading_begins_with_the_batch_that_holds_the_offset() -> None:
    log = PartitionLog()
    append(log, b"a")
    append(log, b"b", b"c")

    assert values(log.read(0, 1000, at_least_one=False)) == [b"a", b"b", b"c"]
    assert values(log.read(2, 1000, at_least_one=False)) == [b"b", b"c"]
    assert log.read(3, 1000, at_least_one=True) == b""


def test_first_batch_is_never_truncated_but_last_one_may_be() -> None:
    log = PartitionLog()
    append(log, b"a")
    append(log, b"b")
    one = len(log.read(1, 1000, at_least_one=False))

    assert log.read(0, one - 1, at_least_one=False) == b""
    assert len(log.read(0, one - 1, at_least_one=True)) == one
    assert len(log.read(0, one + 5, at_least_one=False)) == one + 5


def test_a_batch_sent_twice_is_stored_once() -> None:
    log = PartitionLog()
    (batch,) = split_batches(encode_batch([DemoRecord(b"a")], producer_id=7, base_sequence=0))
    (next_batch,) = split_batches(encode_batch([DemoRecord(b"b")], producer_id=7, base_sequence=1))

    offsets = [log.append(each, 0) for each in (batch, next_batch, batch, next_batch)]

    assert offsets == [0, 1, 0, 1]
    assert log.end == 2


def test_trimming_moves_the_start_and_keeps_the_rest() -> None:
    log = PartitionLog()
    append(log, b"a", b"b")
    append(log, b"c")

    log.trim(1)
    assert log.start == 1
    assert values(log.read(1, 1000, at_least_one=False)) == [b"a", b"b", b"c"]  # a batch is never cut in front

    log.trim(2)
    assert values(log.read(2, 1000, at_least_one=False)) == [b"c"]

    log.trim(99)
    assert (log.start, log.end) == (3, 3)


def test_offsets_are_found_by_time() -> None:
    log = PartitionLog()
    assert (log.newest(), log.offset_at(0)) == (None, None)
    append(log, b"a", at_ms=100)
    append(log, b"b", at_ms=300)
    append(log, b"c", at_ms=200)

    assert log.offset_at(100) == (0, 100)
    assert log.offset_at(101) == (1, 300)
    assert log.offset_at(301) is None
    assert log.newest() == (1, 300)
    log.trim(2)
    assert log.offset_at(100) == (2, 200)


def test_epochs_end_where_the_next_begins() -> None:
    log = PartitionLog()
    append(log, b"a", epoch=1)
    append(log, b"b", b"c", epoch=4)

    assert [log.end_of_epoch(epoch) for epoch in (0, 1, 3, 4, 9)] == [None, (1, 1), (1, 1), (4, 3), (4, 3)]
