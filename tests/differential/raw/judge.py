"""Compare one fetch response with the leader's state before and after it. Pure.

The *twin* of a fetch asks the leader directly for the same partitions, without a session and with max wait 0. One
is sent before the fetch, one after its response; the response has to fit between them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from tests.differential.raw.log import Log, Record, iterate_batches, iterate_message_set

__all__ = [
    "INSTANT_MS",
    "Answer",
    "Key",
    "Part",
    "Partition",
    "Query",
    "Seen",
    "Session",
    "Violation",
    "delivered",
    "judge",
]

Key = tuple[str, int]
"""Topic and partition. The topic is a name, or ``name@id`` if the request named an id."""

READ_COMMITTED: Final = 1
INSTANT_MS: Final = 10
"""A fetch that waits less must be answered from a response to a request that was sent after it."""


@attrs.frozen
class Partition:
    """A partition that a fetch asks for."""

    key: Key
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_epoch: int = -1


@attrs.frozen
class Query:
    """A fetch, as the session makes it whole."""

    version: int
    isolation: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    named: tuple[Partition, ...]
    """The partitions of the request in its order, including one that is named twice."""
    wanted: tuple[Partition, ...]
    """The partitions to read: those of the session, or those that are named."""
    is_incremental: bool = False
    names_nothing: bool = False


@attrs.frozen
class Part:
    """One partition of a response."""

    key: Key
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start: int
    records: bytes
    aborted: tuple[tuple[int, int], ...] = ()
    """Producer id and first offset of each."""
    diverges: bool = False
    preferred_replica: int = -1


@attrs.frozen
class Answer:
    """A response."""

    error: int
    session_id: int
    parts: tuple[Part, ...]
    elapsed_s: float

    @property
    def size(self) -> int:
        """All records."""
        return sum(len(part.records) for part in self.parts)


@attrs.frozen
class Violation:
    """One difference from a broker's behaviour."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@attrs.define
class Seen:
    """The furthest offsets that one connection has seen, by the partition's name and topic id."""

    high_watermarks: dict[object, int] = attrs.field(factory=dict)
    last_stable_offsets: dict[object, int] = attrs.field(factory=dict)


@attrs.define
class Session:
    """A client's knowledge of the partitions of its session (KIP-227)."""

    high_watermarks: dict[Key, int] = attrs.field(factory=dict)
    log_starts: dict[Key, int] = attrs.field(factory=dict)


@attrs.frozen
class Case:
    """All that a verdict needs."""

    query: Query
    answer: Answer
    before: Answer
    after: Answer
    logs: Mapping[Key, Log]
    allowed_s: float
    """The seconds after the request within which the response is due."""
    young: frozenset[Key] = frozenset()
    """Partitions whose topic was made again, or whose records were deleted, within the last second."""
    incarnations: Mapping[Key, object] = attrs.field(factory=dict)
    acknowledged: Mapping[Key, int] = attrs.field(factory=dict)
    """The least high watermarks, by the records acknowledged on the same connection before."""
    lagging: frozenset[Key] = frozenset()
    """Partitions whose newest records the replica that is read may lack yet."""
    has_leader_reads: bool = True
    is_direct: bool = False


def judge(case: Case, seen: Seen, session: Session | None) -> list[Violation]:
    """Return the violations; note in *seen* and *session* the values that the client has learned."""
    found = [*_top_level(case), *_shape(case, session)]
    if case.answer.error:
        return found
    before = {part.key: part for part in case.before.parts}
    after = {part.key: part for part in case.after.parts}
    wanted = {each.key: each for each in case.query.wanted}
    counts = Counter(part.key for part in case.answer.parts)
    for part in case.answer.parts:
        if part.key in wanted and part.key in before and part.key in after and counts[part.key] == 1:
            found += _part(case, wanted[part.key], part, before[part.key], after[part.key], seen)
    found += _limits(case, wanted)
    found += _progress(case)
    if session is not None:
        found += _left_out(case, session, before)
        for part in case.answer.parts:
            session.high_watermarks[part.key] = -1 if part.error else part.high_watermark
            if not part.error:
                session.log_starts[part.key] = part.log_start
    return found


def _top_level(case: Case) -> Iterator[Violation]:
    if case.answer.error:
        yield Violation("session-error", f"error {case.answer.error} where there is no reason for one")
    if case.answer.elapsed_s > case.allowed_s:
        what = f"{case.answer.elapsed_s:.2f} s, due after {case.allowed_s:.2f} s"
        yield Violation("late", what)


def _shape(case: Case, session: Session | None) -> Iterator[Violation]:
    if case.answer.error:
        return
    got = Counter(part.key for part in case.answer.parts)
    expected = Counter(part.key for part in case.before.parts)
    strange = {key: count for key, count in got.items() if key not in expected}
    if strange:
        yield Violation("wrong-partitions", f"not asked for: {strange}")
    twice = {key: count for key, count in got.items() if count > max(1, expected[key])}
    if twice:
        yield Violation("answered-twice", f"{twice}")
    missing = expected.keys() - got.keys()
    if missing and (session is None or not case.query.is_incremental):
        yield Violation("wrong-partitions", f"not answered: {sorted(missing)}")


def _left_out(case: Case, session: Session, before: Mapping[Key, Part]) -> Iterator[Violation]:
    """An incremental response says nothing of partitions that are as they were."""
    if not case.query.is_incremental:
        return
    answered = {part.key for part in case.answer.parts}
    asked = {each.key: each for each in case.query.wanted}
    for key, part in before.items():
        if key in answered or key in case.young:
            continue
        if part.error:
            yield Violation("session-omits", f"{key} has error {part.error}")
        known = session.high_watermarks.get(key, -1)
        if not part.error and known < part.high_watermark and _must_be_fresh(case, asked[key], known):
            yield Violation(
                "session-omits", f"{key} has high watermark {part.high_watermark}, client knows {known}"
            )


def _part(case: Case, asked: Partition, part: Part, before: Part, after: Part, seen: Seen) -> Iterator[Violation]:
    key = part.key
    is_young = key in case.young
    if part.error not in (before.error, after.error) and not is_young:
        yield Violation("wrong-error", f"{key} has error {part.error}, the leader says {before.error}")
    if part.diverges != before.diverges and not is_young:
        yield Violation("wrong-error", f"{key} diverges: {part.diverges}, the leader says {before.diverges}")
    if part.error or part.diverges or part.preferred_replica >= 0:
        if part.records:
            yield Violation(
                "wrong-records", f"{key} has error {part.error} and {len(part.records)} bytes of records"
            )
        return
    if not is_young:
        yield from _offsets(case, asked, part, before, after)
        yield from _never_back(case, part, seen)
        if part.records and not after.error:
            yield from _records(case, asked, part, after)


def _offsets(case: Case, asked: Partition, part: Part, before: Part, after: Part) -> Iterator[Violation]:
    key, watermark = part.key, part.high_watermark
    if after.error or before.error:
        return
    if watermark > after.high_watermark:
        yield Violation("high-watermark-ahead", f"{key}: {watermark}, the leader says {after.high_watermark}")
    least = max(before.high_watermark, case.acknowledged.get(key, -1))
    is_fresh = _must_be_fresh(case, asked, watermark)
    if watermark < least and is_fresh:
        text = (
            f"{key}: high watermark {watermark}, the leader said {least} before (max wait {case.query.max_wait_ms})"
        )
        yield Violation("stale-high-watermark", text)
    if case.query.version >= 4:
        stable = part.last_stable_offset
        if stable > after.last_stable_offset:
            yield Violation("last-stable-ahead", f"{key}: {stable}, the leader says {after.last_stable_offset}")
        if stable < before.last_stable_offset and is_fresh:
            yield Violation("stale-last-stable", f"{key}: {stable}, the leader said {before.last_stable_offset}")
    if case.query.version >= 5 and not before.log_start <= part.log_start <= after.log_start:
        text = f"{key}: {part.log_start}, the leader says {before.log_start} to {after.log_start}"
        yield Violation("wrong-log-start", text)


def _must_be_fresh(case: Case, asked: Partition, watermark: int) -> bool:
    """Return whether *watermark*, the one stated last, must be the leader's at the time of the fetch.

    Unless the client hardly waits, its records may have been read up to 1 s ago, with the offsets of that time,
    also if they did not fit into this response. That there is nothing new must be true now.
    """
    may_be_cached = case.answer.size > 0 and case.query.max_wait_ms >= INSTANT_MS and asked.offset < watermark
    return case.has_leader_reads and not may_be_cached


def _never_back(case: Case, part: Part, seen: Seen) -> Iterator[Violation]:
    identity = (part.key[1], case.incarnations.get(part.key, part.key[0]))
    furthest = seen.high_watermarks.get(identity, -1)
    if part.high_watermark < furthest:
        yield Violation("high-watermark-back", f"{part.key}: {part.high_watermark} after {furthest}")
    seen.high_watermarks[identity] = max(furthest, part.high_watermark)
    if case.query.version >= 4:
        furthest = seen.last_stable_offsets.get(identity, -1)
        if part.last_stable_offset < furthest:
            yield Violation("last-stable-back", f"{part.key}: {part.last_stable_offset} after {furthest}")
        seen.last_stable_offsets[identity] = max(furthest, part.last_stable_offset)


def _records(case: Case, asked: Partition, part: Part, after: Part) -> Iterator[Violation]:
    log = case.logs[part.key]
    if case.query.version < 4:
        yield from _old_records(case, asked, part, after, log)
        return
    bound = after.last_stable_offset if case.query.isolation == READ_COMMITTED else after.high_watermark
    expected = log.bytes_from(asked.offset, len(part.records))
    if expected != part.records:
        yield Violation("wrong-records", f"{part.key} from {asked.offset}: {_difference(part.records, expected)}")
        return
    batches = list(iterate_batches(part.records))
    if batches and batches[-1].last >= bound:
        kind = "beyond-last-stable" if case.query.isolation == READ_COMMITTED else "beyond-high-watermark"
        yield Violation(kind, f"{part.key}: records up to {batches[-1].last}, the leader says {bound}")
    if case.query.isolation == READ_COMMITTED and batches:
        got = delivered(part.records, part.aborted, log, asked.offset)
        committed = log.records(asked.offset, batches[-1].last + 1, committed=True)
        if got != committed:
            text = f"{part.key} from {asked.offset}: {_offsets_of(got)}, committed are {_offsets_of(committed)}"
            yield Violation("wrong-aborted", text)


def _offsets_of(records: Sequence[Record]) -> str:
    offsets = [record[0] for record in records]
    return f"{len(offsets)} records" + (f" {offsets[0]} to {offsets[-1]}" if offsets else "")


def _difference(got: bytes, expected: bytes) -> str:
    def listed(data: bytes) -> str:
        try:
            batches = [f"{batch.base}-{batch.last}" for batch in iterate_batches(data)]
        except ValueError as error:
            return str(error)
        return ",".join(batches[:8]) + (",..." if len(batches) > 8 else "") + f" ({len(data)} bytes)"

    at = next((i for i, (one, other) in enumerate(zip(got, expected, strict=False)) if one != other), None)
    return f"got {listed(got)}, the log has {listed(expected)}; they differ from byte {at}"


def _old_records(case: Case, asked: Partition, part: Part, after: Part, log: Log) -> Iterator[Violation]:
    got: list[Record] = []
    most = 1 if case.query.version >= 2 else 0
    try:
        for magic, record in iterate_message_set(part.records):
            if magic > most:
                yield Violation("wrong-records", f"{part.key}: magic {magic} for version {case.query.version}")
                return
            # Brokers that convert repeat the batch behind a control batch at which a fetch begins.
            if not (case.is_direct and got and record[0] <= got[-1][0]):
                got.append(record)
    except Exception as error:
        yield Violation("wrong-records", f"{part.key} from {asked.offset}: unreadable, {error!r}")
        return
    if not got:
        return
    expected = log.records(got[0][0], got[-1][0] + 1)
    if got != expected:
        text = f"{part.key} from {asked.offset}: {_offsets_of(got)}, the log has {_offsets_of(expected)}"
        yield Violation("wrong-records", text)
    skipped = log.records(asked.offset, got[0][0])
    if skipped:
        yield Violation("wrong-records", f"{part.key} from {asked.offset}: {_offsets_of(skipped)} left out")
    first = log.batches(asked.offset, asked.offset + 1)
    if got[-1][0] < asked.offset or got[0][0] < min([asked.offset, *(batch.base for batch in first)]):
        yield Violation("wrong-records", f"{part.key} from {asked.offset}: {_offsets_of(got)}, too early")
    if got[-1][0] >= after.high_watermark:
        yield Violation(
            "beyond-high-watermark", f"{part.key}: {got[-1][0]}, the leader says {after.high_watermark}"
        )


def delivered(records: bytes, aborted: Sequence[tuple[int, int]], log: Log, first: int) -> list[Record]:
    """Return the records from offset *first* that a Java consumer with read_committed gives to its application."""
    waiting = sorted(aborted, key=lambda each: each[1])
    producers: set[int] = set()
    found: list[Record] = []
    for batch in iterate_batches(records):
        if batch.producer_id >= 0:
            while waiting and waiting[0][1] <= batch.last:
                producers.add(waiting.pop(0)[0])
            if batch.is_abort:
                producers.discard(batch.producer_id)
            elif batch.is_transactional and batch.producer_id in producers:
                continue
        if not batch.is_control:
            found += log.records(max(first, batch.base), batch.last + 1)
    return found


def _limits(case: Case, wanted: Mapping[Key, Partition]) -> Iterator[Violation]:
    """KIP-74: only the first partition with records may exceed the limits, by one batch."""
    query = case.query
    filled = [part for part in case.answer.parts if part.records and part.key in wanted]
    total = 0
    for number, part in enumerate(filled):
        size, is_one_batch = _size(case, part)
        may_exceed = is_one_batch and (number == 0 or query.version < 3)
        limit = wanted[part.key].max_bytes
        if size > limit and not may_exceed:
            text = f"{part.key}: {size} bytes, partition max bytes {limit}, number {number + 1} with records"
            yield Violation("partition-limit", text)
        total += size
        if query.version >= 3 and total > query.max_bytes and not (number == 0 and is_one_batch):
            yield Violation(
                "response-limit", f"{total} bytes after {number + 1} partitions, max bytes {query.max_bytes}"
            )
            return


def _size(case: Case, part: Part) -> tuple[int, bool]:
    """Return the bytes that count for the limits, and whether they are of one batch."""
    if case.query.version >= 4:
        try:
            batches = list(iterate_batches(part.records))
        except ValueError:
            return len(part.records), False
        return len(part.records), len(batches) == 1 and batches[0].size == len(part.records)
    log = case.logs.get(part.key)
    offsets = [record[0] for _, record in iterate_message_set(part.records)]
    if not offsets or log is None:
        return len(part.records), True
    originals = [batch for batch in log.batches(offsets[0], offsets[-1] + 1) if not batch.is_control]
    return len(part.records), len(originals) <= 1


def _progress(case: Case) -> Iterator[Violation]:
    if case.answer.size or case.young or _passes_markers(case):
        return
    for part in case.before.parts:
        if part.key in case.lagging:
            continue
        if part.records and (case.query.version >= 4 or _has_messages(case, part)):
            (asked, *_) = [each for each in case.query.wanted if each.key == part.key]
            text = f"no records at all, though {part.key} has some from {asked.offset} to {part.high_watermark}"
            yield Violation("nothing-there", text)
            return


def _passes_markers(case: Case) -> bool:
    """Return whether the response may be empty because Sidefetch has just skipped a marker for an old client.

    A fetch without a wait ends with the first response of the broker, whose limits a marker may have used up.
    """
    if case.query.version >= 4 or case.query.max_wait_ms >= INSTANT_MS:
        return False
    logs = ((case.logs[each.key], each.offset) for each in case.query.wanted if each.key in case.logs)
    return any(batch.is_control for log, offset in logs for batch in log.batches(offset, offset + 1))


def _has_messages(case: Case, part: Part) -> bool:
    """Return whether a broker that converts would have found messages for a client of an old version.

    There are none in the markers of transactions, and before version 3 a batch over the limit is cut (KIP-74).
    """
    (asked, *_) = [each for each in case.query.wanted if each.key == part.key]
    batches = [batch for batch in iterate_batches(part.records) if batch.last >= asked.offset]
    fits = case.query.version >= 3 or (bool(batches) and batches[0].size <= asked.max_bytes)
    return fits and not all(batch.is_control for batch in batches)
