"""The judgement over the readings of one combination: pure functions of the readers' reports."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import attrs

__all__ = ["End", "Expectation", "Problem", "Reading", "Recreated", "Revoked", "Trimmed", "Verdict", "judge"]

SLOWER_BY: Final = 3.0
SLACK_MS: Final = 1_000
LONGEST_GAP_MS: Final = 10_000
STILL_READING_MS: Final = 5_000
"""A reader that was given up is slow, and not stuck, if it had records later than so long before."""
STALE_AFTER_MS: Final = 1_500
"""The time after an acknowledged event in which records that it removed may still be delivered."""

Row = tuple[int, int, int, int]
"""Partition, offset, CRC-32 of key and value, timestamp in ms."""
Key = tuple[int, int, int]
"""Offset, CRC-32, timestamp in ms; the timestamp is 0 where it is not compared."""

End = Literal["done", "error", "stuck"]
"""The end of a reader: with all records, with an error, or by being killed."""


@attrs.frozen
class Reading:
    """The report of one reader."""

    lines: Sequence[tuple[int, Sequence[Row]]]
    """The delivered records, by time of delivery in ms since the start."""
    end: End
    lasted_ms: int
    """The time until the end, or until the reader was killed."""
    error: str = ""
    heard: Sequence[str] = ()
    committed: Mapping[int, int] = attrs.field(factory=dict)
    """By partition, the offset of the last successful commit."""
    stored: Mapping[int, int] | None = None
    """By partition, the offset that the broker has stored for the group; None if the reader commits nothing."""
    waits: Sequence[tuple[int, int, int]] = ()
    """The steps in which the application sleeps or pauses: partition and offset that begin it, duration in ms."""

    @property
    def count(self) -> int:
        return sum(len(rows) for _, rows in self.lines)

    @property
    def took_ms(self) -> int:
        """Return the time until the last record, or until the end if there is none."""
        return self.lines[-1][0] if self.lines else self.lasted_ms

    def lines_after(self, event_ms: int) -> Iterator[tuple[int, Sequence[Row]]]:
        """Yield the lines later than STALE_AFTER_MS after an event, by the time that the application did not wait.

        Records that the client has fetched before the event are delivered after the application's waits.
        """
        begins = {(partition, offset): wait_ms for partition, offset, wait_ms in self.waits}
        waited_ms = 0
        for ms, rows in self.lines:
            if ms - waited_ms >= event_ms + STALE_AFTER_MS:
                yield ms, rows
            for partition, offset, *_ in rows:
                for key in [each for each in begins if each[0] == partition and each[1] <= offset]:
                    wait_ms = begins.pop(key)
                    waited_ms += min(wait_ms, max(0, ms + wait_ms - event_ms))

    @property
    def longest_gap_ms(self) -> int:
        times = [0, *(ms for ms, _ in self.lines)]
        if self.end == "stuck":
            times.append(self.lasted_ms)
        return max((late - early for early, late in itertools.pairwise(times)), default=0)


@attrs.frozen
class Trimmed:
    """An event that deletes the records before a new log start of each partition, acknowledged after a time."""

    starts: Mapping[int, int]
    at_ms: int


@attrs.frozen
class Recreated:
    """An event that replaces the topic by another of the same name; ``old`` has the rows of the first topic."""

    old: frozenset[tuple[int, int, int]]
    """Partition, offset and CRC-32 of each."""
    at_ms: int


@attrs.frozen
class Revoked:
    """An event that takes the right to read the topic, and gives it back later."""

    at_ms: int
    restored_ms: int


Expectation = Trimmed | Recreated | Revoked | None
"""The event that changes which records a reader is to deliver; None if every reader delivers the same."""


@attrs.frozen
class Problem:
    """One way in which a reading differs from its reference."""

    kind: Literal["stuck", "records", "error", "slow", "gap", "stale", "commit"]
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@attrs.frozen
class Verdict:
    """The outcome of one combination."""

    outcome: Literal["passed", "find", "void"]
    problems: Sequence[Problem] = ()

    def __str__(self) -> str:
        return "; ".join([self.outcome, *map(str, self.problems)])


def judge(
    direct: Reading,
    control: Reading,
    side: Reading,
    until: Mapping[int, int],
    expectation: Expectation = None,
    *,
    truth: Reading | None = None,
    may_repeat: bool = False,
    directly_again: bool = False,
    slowest_ms: int = 0,
) -> Verdict:
    """Compare the reading through Sidefetch with the direct ones.

    Args:
        truth: the records, if they are another client's; its timestamps are not compared. The direct readers then
            read from another cluster, and one that fails there is no reason to fail here.
        may_repeat: the readers are members of groups, and disturbances may make them go back to their last commit,
            since Kafka promises at least once.
        directly_again: the direct readers' broker converts records down. Kafka 3.9 then delivers a batch a second
            time if the offset after it has no record (an end of a transaction, a record that compaction removed),
            to
            Java 0.9 and 0.10 and kafka-python 1.4. Sidefetch delivers each once.
        slowest_ms: how long a direct reader took in an earlier run of the combination, at most.
    """
    if may_repeat:
        direct, control, side = map(_once, (direct, control, side))
    if direct.end == "stuck" or control.end == "stuck" or (truth is not None and truth.end != "done"):
        return Verdict("void", [Problem("stuck", "a direct reader did not finish")])
    if noise := [*_problems(control, direct, direct, direct.took_ms, until, expectation, None)]:
        return Verdict("void", noise)
    slower = max(direct, control, key=lambda each: each.took_ms)
    pace_ms = max(slower.took_ms, slowest_ms)
    if directly_again and truth is None:
        direct = _without_repeats(direct, side)
    if problems := [*_problems(side, direct, slower, pace_ms, until, expectation, truth)]:
        return Verdict("find", problems)
    return Verdict("passed")


def _problems(
    reading: Reading,
    direct: Reading,
    slower: Reading,
    pace_ms: int,
    until: Mapping[int, int],
    expectation: Expectation,
    truth: Reading | None,
) -> Iterator[Problem]:
    """Yield how *reading* differs from *direct*, and from *slower* and *pace_ms* in time."""
    if reading.end == "stuck":
        last = f"the last after {reading.took_ms / 1000:.1f} s" if reading.lines else "none at all"
        took = f"{reading.lasted_ms / 1000:.1f} s (directly {slower.took_ms / 1000:.1f} s)"
        is_reading = bool(reading.lines) and reading.lasted_ms - reading.took_ms < STILL_READING_MS
        kind: Literal["slow", "stuck"] = "slow" if is_reading else "stuck"
        yield Problem(kind, f"{reading.count} of {direct.count} records in {took}, {last}")
    elif (ends := (_end(reading), _end(direct)))[0] != ends[1] and not (truth and reading.end == "done"):
        yield Problem("error", f"{ends[0]} ({reading.error[:300]}), directly {ends[1]} ({direct.error[:300]})")
    yield from _record_problems(reading, direct, until, expectation, truth)
    if reading.end == direct.end == "done" and reading.took_ms > SLOWER_BY * pace_ms + SLACK_MS:
        yield Problem("slow", f"{reading.took_ms / 1000:.1f} s, directly {pace_ms / 1000:.1f} s")
    if reading.longest_gap_ms > LONGEST_GAP_MS > slower.longest_gap_ms and reading.end != "stuck":
        yield Problem("gap", f"{reading.longest_gap_ms / 1000:.1f} s without a record")
    if reading.stored is not None:
        for partition, offset in reading.committed.items():
            if (stored := reading.stored.get(partition)) != offset:
                yield Problem("commit", f"partition {partition}: {offset} acknowledged, {stored} stored")


def _once(reading: Reading) -> Reading:
    """Return *reading* without the records that had been delivered before."""
    seen: set[object] = set()
    lines = []
    for ms, rows in reading.lines:
        lines.append((ms, [row for row in rows if tuple(row) not in seen]))
        seen.update(map(tuple, rows))
    return attrs.evolve(reading, lines=lines)


def _without_repeats(direct: Reading, side: Reading) -> Reading:
    """Return *direct* without the records that it delivered again where *side* went on.

    Where *side* goes back, too, as after a seek, the repeats stay. Each partition is compared by itself, since
    deliveries of several may be interleaved differently.
    """
    ahead = {partition: iter(keys) for partition, keys in _sequences(side, {}).items()}
    wanted = {partition: next(keys, None) for partition, keys in ahead.items()}
    seen: set[Row] = set()
    lines = []
    for ms, rows in direct.lines:
        kept = []
        for partition, offset, crc, timestamp_ms in rows:
            key, row = (offset, crc, timestamp_ms), (partition, offset, crc, timestamp_ms)
            if wanted.get(partition) == key:
                wanted[partition] = next(ahead[partition], None)
            elif row in seen:
                continue
            seen.add(row)
            kept.append(row)
        lines.append((ms, kept))
    return attrs.evolve(direct, lines=lines)


def _end(reading: Reading) -> str:
    """Return "done", or the class of the error."""
    if reading.end != "error":
        return reading.end
    return "/".join(sorted(set(re.findall(r"\b(?:\w+(?:Exception|Error)|_?[A-Z]+(?:_[A-Z]+)+)\b", reading.error))))


def _record_problems(
    reading: Reading,
    direct: Reading,
    until: Mapping[int, int],
    expectation: Expectation,
    truth: Reading | None,
) -> Iterator[Problem]:
    match expectation:
        case None:
            expected = _sequences(truth or direct, until, timestamps=truth is None)
            got = _sequences(reading, until, timestamps=truth is None)
            is_whole = reading.end == (truth or direct).end == "done"
            for partition in sorted(expected.keys() | got.keys()):
                pair = expected.get(partition, []), got.get(partition, [])
                yield from _sequence_problem(partition, *pair, is_whole=is_whole)
        case Trimmed():
            yield from _trimmed_problems(reading, direct, until, expectation)
        case Recreated():
            yield from _recreated_problems(reading, direct, expectation)
        case Revoked():
            yield from _ascending_problems(_sequences(reading, until))
            yield from _stale_problems(
                *(
                    sum(
                        len(rows)
                        for ms, rows in each.lines_after(expectation.at_ms)
                        if ms < expectation.restored_ms
                    )
                    for each in (reading, direct)
                )
            )


def _sequences(reading: Reading, until: Mapping[int, int], *, timestamps: bool = True) -> dict[int, list[Key]]:
    """Return each partition's records in order, up to the first at its end or beyond."""
    found: dict[int, list[Key]] = {}
    ended: set[int] = set()
    for _, rows in reading.lines:
        for partition, offset, crc, timestamp_ms in rows:
            if partition not in ended:
                found.setdefault(partition, []).append((offset, crc, timestamp_ms if timestamps else 0))
                if partition in until and offset >= until[partition]:
                    ended.add(partition)
    return found


def _sequence_problem(
    partition: int, expected: Sequence[Key], got: Sequence[Key], *, is_whole: bool
) -> Iterator[Problem]:
    """Yield the first difference; unless *is_whole*, compare only the common part."""
    for index, (wanted, had) in enumerate(zip(expected, got, strict=False)):
        if wanted != had:
            before = got[index - 1][0] if index else None
            text = f"partition {partition}: {had} after offset {before}, directly {wanted}"
            yield Problem("records", text)
            return
    if is_whole and len(expected) != len(got):
        yield Problem("records", f"partition {partition}: {len(got)} records, directly {len(expected)}")


def _ascending_problems(sequences: Mapping[int, Sequence[Key]]) -> Iterator[Problem]:
    for partition, keys in sequences.items():
        for (early, *_), (late, *_) in itertools.pairwise(keys):
            if late <= early:
                yield Problem("records", f"partition {partition}: offset {late} after {early}")
                break


def _trimmed_problems(
    reading: Reading, direct: Reading, until: Mapping[int, int], event: Trimmed
) -> Iterator[Problem]:
    sequences, expected = _sequences(reading, until), _sequences(direct, until)
    yield from _ascending_problems(sequences)
    if reading.end == "done":
        for partition, start in event.starts.items():
            wanted = [each for each in expected.get(partition, []) if each[0] >= start]
            had = [each for each in sequences.get(partition, []) if each[0] >= start]
            yield from _sequence_problem(partition, wanted, had, is_whole=True)
    yield from _stale_problems(
        *(
            sum(
                offset < event.starts.get(partition, 0)
                for _, rows in each.lines_after(event.at_ms)
                for partition, offset, *_ in rows
            )
            for each in (reading, direct)
        )
    )


def _recreated_problems(reading: Reading, direct: Reading, event: Recreated) -> Iterator[Problem]:
    newest: dict[int, int] = {}
    for _, rows in reading.lines:
        for partition, offset, crc, _ in rows:
            is_old = (partition, offset, crc) in event.old
            if is_old and partition in newest:
                yield Problem(
                    "records", f"partition {partition}: old offset {offset} after the new topic's records"
                )
                return
            if not is_old:
                if partition in newest and offset != newest[partition] + 1:
                    text = f"partition {partition}: new offset {offset} after {newest[partition]}"
                    yield Problem("records", text)
                    return
                newest[partition] = offset
    yield from _stale_problems(
        *(
            sum(
                (partition, offset, crc) in event.old
                for _, rows in each.lines_after(event.at_ms)
                for partition, offset, crc, _ in rows
            )
            for each in (reading, direct)
        )
    )


def _stale_problems(count: int, direct_count: int) -> Iterator[Problem]:
    """Yield problems with stale records: a client delivers its own buffer, about as many records as directly."""
    if count > 2 * direct_count + 20:
        yield Problem("stale", f"{count} records that are gone or forbidden, directly {direct_count}")
