"""The judge of the raw generator finds each kind of wrong response, and nothing in right ones."""

import struct

import attrs
import lz4.frame
import pytest
import xxhash

from tests.differential.raw.judge import (
    Answer,
    Case,
    Key,
    Part,
    Partition,
    Query,
    Seen,
    Session,
    delivered,
    judge,
)
from tests.differential.raw.log import Log, build_batch, iterate_batches, iterate_message_set
from tests.differential.raw.messages import Apis, decode_response
from tests.differential.raw.tags import with_unknown_tags

KEY: Key = ("t", 0)
OTHER: Key = ("t", 1)
VALUES = (b"a" * 50, b"b" * 50)


def at(offset: int, batch: bytes) -> bytes:
    """Return a record batch as a broker places it."""
    return offset.to_bytes(8, "big") + batch[8:]


def some_log(batches: int = 4) -> tuple[Log, bytes]:
    """Return a log of batches of two records, and its bytes."""
    data = b"".join(at(2 * number, build_batch(2, VALUES)) for number in range(batches))
    log = Log()
    log.extend(data)
    return log, data


LOG, DATA = some_log()
BATCH = len(DATA) // 4


def part(key: Key = KEY, *, records: bytes = b"", end: int = 8, error: int = 0, stable: int | None = None) -> Part:
    return Part(key, error, end, end if stable is None else stable, 0, records)


def answer(*parts: Part, error: int = 0, elapsed_s: float = 0.01) -> Answer:
    return Answer(error, 0, parts, elapsed_s)


def case(
    got: Answer,
    *,
    leader: Answer | None = None,
    version: int = 12,
    isolation: int = 0,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    offset: int = 0,
    is_incremental: bool = False,
    max_wait_ms: int = 0,
) -> Case:
    wanted = tuple(Partition(key, offset, partition_max_bytes) for key in (KEY, OTHER))
    truth = leader or answer(part(records=DATA), part(OTHER, records=DATA))
    query = Query(version, isolation, max_wait_ms, 1, max_bytes, wanted, wanted, is_incremental)
    return Case(query, got, truth, truth, {KEY: LOG, OTHER: LOG}, 1.0)


def kinds(judged: Case, seen: Seen | None = None, session: Session | None = None) -> list[str]:
    return [violation.kind for violation in judge(judged, seen or Seen(), session)]


RIGHT = answer(part(records=DATA), part(OTHER, records=DATA[: 2 * BATCH]))


def test_judge_accepts_correct_response() -> None:
    assert kinds(case(RIGHT)) == []


def test_judge_accepts_a_batch_that_is_cut_at_the_end() -> None:
    assert kinds(case(answer(part(records=DATA[: BATCH + 30]), part(OTHER)))) == []


def test_judge_accepts_a_first_batch_that_begins_before_the_offset() -> None:
    assert kinds(case(answer(part(records=DATA[BATCH:]), part(OTHER)), offset=3)) == []


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (answer(part(records=DATA)), "wrong-partitions"),
        (answer(part(records=DATA), part(OTHER), part(("t", 2))), "wrong-partitions"),
        (answer(part(records=DATA), part(OTHER), part(OTHER)), "answered-twice"),
        (answer(part(records=DATA), part(OTHER, error=1)), "wrong-error"),
        (answer(part(records=DATA), part(OTHER, error=1, records=DATA)), "wrong-records"),
        (answer(part(records=DATA[BATCH:]), part(OTHER)), "wrong-records"),
        (answer(part(records=DATA[:BATCH] + DATA[2 * BATCH :]), part(OTHER)), "wrong-records"),
        (answer(part(records=DATA[:-1] + b"?"), part(OTHER)), "wrong-records"),
        (answer(part(records=DATA, end=7), part(OTHER)), "stale-high-watermark"),
        (answer(part(records=DATA, end=9), part(OTHER)), "high-watermark-ahead"),
        (answer(part(records=DATA, stable=7), part(OTHER)), "stale-last-stable"),
        (answer(part(records=DATA, stable=9), part(OTHER)), "last-stable-ahead"),
        (answer(attrs.evolve(part(records=DATA), log_start=3), part(OTHER)), "wrong-log-start"),
        (answer(part(), part(OTHER)), "nothing-there"),
        (answer(error=71), "session-error"),
        (answer(part(records=DATA), part(OTHER), elapsed_s=1.1), "late"),
    ],
)
def test_judge_reports_kind_of_violation(wrong: Answer, kind: str) -> None:
    assert kind in kinds(case(wrong))


def test_judge_refuses_records_beyond_the_high_watermark() -> None:
    leader = answer(part(records=DATA, end=6), part(OTHER, end=6))
    got = answer(part(records=DATA, end=6), part(OTHER, end=6))
    assert kinds(case(got, leader=leader)) == ["beyond-high-watermark"]


def test_judge_refuses_uncommitted_records_for_read_committed() -> None:
    leader = answer(part(records=DATA[:BATCH], stable=2), part(OTHER, stable=2))
    got = answer(part(records=DATA, stable=2), part(OTHER, stable=2))
    assert kinds(case(got, leader=leader, isolation=1)) == ["beyond-last-stable"]


def test_judge_refuses_watermarks_that_go_back_on_a_connection() -> None:
    seen = Seen()
    assert kinds(case(RIGHT), seen) == []
    back = answer(part(records=DATA[:BATCH], end=6), part(OTHER, end=8))
    assert kinds(case(back, leader=answer(part(end=6), part(OTHER))), seen) == [
        "high-watermark-back",
        "last-stable-back",
    ]


@pytest.mark.parametrize("filled", [2 * BATCH, 3 * BATCH])
def test_judge_refuses_more_than_max_bytes_unless_it_is_one_batch(filled: int) -> None:
    got = answer(part(records=DATA[:filled]), part(OTHER))
    assert kinds(case(got, max_bytes=filled)) == []
    assert kinds(case(got, max_bytes=filled - 1)) == ["response-limit"]


def test_judge_allows_one_batch_over_all_limits_in_the_first_filled_partition_only() -> None:
    one = DATA[:BATCH]
    second, both = answer(part(), part(OTHER, records=one)), answer(part(records=one), part(OTHER, records=one))
    assert kinds(case(second, max_bytes=1, partition_max_bytes=1)) == []
    assert kinds(case(both, max_bytes=1, partition_max_bytes=1)) == [
        "partition-limit",
        "response-limit",
    ]
    assert kinds(case(both, partition_max_bytes=1)) == ["partition-limit"]


def test_judge_accepts_incremental_response_without_unchanged_partitions() -> None:
    session = Session({KEY: 8, OTHER: 8})
    nothing = answer(part(), part(OTHER))
    assert kinds(case(answer(), leader=nothing, is_incremental=True), session=session) == []
    session.high_watermarks[OTHER] = 7
    assert kinds(case(answer(), leader=nothing, is_incremental=True), session=session) == ["session-omits"]


@pytest.mark.parametrize(
    ("max_wait_ms", "offset", "found"), [(500, 0, []), (5, 0, ["session-omits"]), (500, 7, ["session-omits"])]
)
def test_judge_accepts_offsets_up_to_1_s_old_of_records_that_do_not_fit(
    max_wait_ms: int, offset: int, found: list[str]
) -> None:
    got = case(
        answer(part(records=DATA[offset // 2 * BATCH :])),
        offset=offset,
        is_incremental=True,
        max_wait_ms=max_wait_ms,
    )
    assert kinds(got, session=Session({KEY: 8, OTHER: 7})) == found


def test_judge_reads_message_sets_of_old_versions() -> None:
    got = answer(part(records=build_batch(1, VALUES)), part(OTHER))
    assert kinds(case(got, version=2)) == []
    assert "wrong-records" in kinds(case(got, version=0))
    assert "wrong-records" in kinds(case(got, version=2, offset=2))
    other = answer(part(records=build_batch(1, VALUES[::-1])), part(OTHER))
    assert "wrong-records" in kinds(case(other, version=2))


def test_message_sets_of_magic_0_are_read_with_the_lz4_checksum_of_kafka() -> None:
    frame = lz4.frame.compress(build_batch(0, VALUES), store_size=False)
    frame = frame[:6] + bytes([xxhash.xxh32_intdigest(frame[:6]) >> 8 & 255]) + frame[7:]
    message = bytes([0, 3]) + struct.pack(">ii", -1, len(frame)) + frame
    wrapper = struct.pack(">qiI", 1, 4 + len(message), 0) + message

    assert [record[2] for _, record in iterate_message_set(wrapper)] == list(VALUES)


def test_judge_refuses_oversized_message_sets_unless_they_are_of_one_batch() -> None:
    def set_of(count: int) -> bytes:
        return build_batch(1, VALUES * count)

    one, two = answer(part(records=set_of(1)), part(OTHER)), answer(part(records=set_of(2)), part(OTHER))
    assert kinds(case(one, version=3, partition_max_bytes=1)) == []
    assert "partition-limit" in kinds(case(two, version=3, partition_max_bytes=1))


def transactional(offset: int, producer_id: int, *, marker: int | None = None) -> bytes:
    """Return a batch of a transaction, or the marker that ends it (0 aborts, 1 commits), with a wrong CRC."""
    key = b"\0\0\0" + bytes([marker]) if marker is not None else b"k"
    batch = bytearray(at(offset, build_batch(2, [b"v"])))
    if marker is not None:
        body = b"\0\0\0" + bytes([2 * len(key)]) + key + b"\0\0"
        batch[61:] = bytes([2 * len(body)]) + body
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[21:23] = (16 | (32 if marker is not None else 0)).to_bytes(2, "big")
    batch[43:51] = producer_id.to_bytes(8, "big")
    return bytes(batch)


def test_delivered_leaves_out_aborted_transactions_as_java_does() -> None:
    data = b"".join(
        (
            transactional(0, 1),
            transactional(1, 2),
            transactional(2, 1, marker=0),
            transactional(3, 1),
            transactional(4, 2, marker=1),
            transactional(5, 1, marker=1),
        )
    )
    log = Log()
    log.extend(data)

    assert [batch.is_abort for batch in iterate_batches(data)] == [False, False, True, False, False, False]
    assert [record[0] for record in log.records(0, 6)] == [0, 1, 3]
    assert [record[0] for record in log.records(0, 6, committed=True)] == [1, 3]
    assert [record[0] for record in delivered(data, [(1, 0)], log, 0)] == [1, 3]
    assert [record[0] for record in delivered(data, [], log, 0)] == [0, 1, 3]


def test_unknown_tags_are_put_into_every_structure_and_skipped_by_the_reader() -> None:
    # ApiVersions v3: correlation id, error, one API without tags, throttle time, no tags.
    frame = bytes.fromhex("00000007000002001200000004000000000000")
    changed = with_unknown_tags(Apis.API_VERSIONS, 3, frame)

    assert changed.count(b"unknown") == 2
    assert decode_response(Apis.API_VERSIONS, 3, changed)[:2] == decode_response(Apis.API_VERSIONS, 3, frame)[:2]
    assert with_unknown_tags(Apis.API_VERSIONS, 2, frame) == frame
