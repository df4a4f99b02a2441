"""Execution of a sequence on one connection, and its violations."""

import math
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

import attrs

from tests.differential.raw import pipeline
from tests.differential.raw.connection import BrokenConversationError, Connection
from tests.differential.raw.judge import Answer, Case, Key, Partition, Query, Seen, Session, Violation, judge
from tests.differential.raw.log import build_batch, iterate_batches, iterate_message_set
from tests.differential.raw.messages import Apis
from tests.differential.raw.sequence import (
    LIVE,
    Ask,
    DeleteRecords,
    Fetch,
    MoveLeader,
    Pause,
    Pipeline,
    Produce,
    Recreate,
)
from tests.differential.raw.sequence import (
    Sequence as Drawn,
)
from tests.differential.raw.truth import Topic, Truth, fetch_values, read_answer, send_produce
from tests.kafka.admin import Admin, unique

__all__ = ["Outcome", "Runner", "Stage"]

YOUNG_S: Final = 1.2
"""The time after a change in which the old records may still be delivered."""
_LONG_WAIT_MS: Final = 8_000
"""Max wait of fetches that a broker answers at once."""
_AT_ONCE_S: Final = 1.0
_CONVERSION_S_PER_BYTE: Final = 1e-6
_HISTORY: Final = 6
_UNKNOWN: Final = (3, 29, 100)
"""Errors of partitions that a broker answers without reading: unknown topic, no right to read, unknown topic id."""


@attrs.frozen
class Stage:
    """The parts that all sequences of a run share."""

    admin: Admin
    leader: str
    """The address of the broker that leads all partitions."""
    peer: str
    """The address of the tested peer: Sidefetch's listener for that broker, or the broker itself."""
    topics: dict[str, Topic]
    group: str
    """A group that this broker coordinates."""
    has_leader_reads: bool = True
    is_direct: bool = False
    """The peer is the broker itself."""


@attrs.define
class Outcome:
    """The result of a sequence."""

    violations: list[Violation] = attrs.field(factory=list)
    history: deque[str] = attrs.field(factory=lambda: deque(maxlen=2 * _HISTORY))
    requests: int = 0
    steps: int = 0
    """The number of steps that were begun."""


@attrs.define
class _Slot:
    """One partition, as a reader knows it."""

    next: int = 0
    last: int = 0
    """The offset that was asked for last."""
    held: int = 0
    """For how many fetches to come it is left out."""


class Runner:
    """The execution of one sequence; call ``run`` once."""

    def __init__(self, stage: Stage, drawn: Drawn, ignored: Collection[str] = ()) -> None:
        """*ignored*: kinds of violations that are passed over."""
        self._ignored = ignored
        self._stage = stage
        self._drawn = drawn
        self._topics = dict(stage.topics)
        self._slots: dict[tuple[str, int], _Slot] = {}
        self._seen = Seen()
        self._session = Session()
        self._session_id, self._epoch, self._has_ids = 0, 0, False
        self._entries: dict[Key, Partition] = {}
        self._values = 0
        self._is_unnoticed = False
        """Whether the live topic was created again and not fetched by name since."""
        self.outcome = Outcome()

    def run(self) -> Outcome:
        stage, name = self._stage, unique("raw-live")
        self._truth = Truth(stage.leader)
        self._tested = Connection(stage.peer, "raw")
        self._other = Connection(stage.peer, "raw-other")
        self._create(name)
        try:
            for step in self._drawn.steps:
                self.outcome.steps += 1
                try:
                    self._step(step)
                except BrokenConversationError as error:
                    self.outcome.violations.append(Violation("broken", str(error)))
                if self.outcome.violations:
                    break
            self._close_session()
        finally:
            for each in (self._tested, self._other):
                each.close()
            self._truth.close()
            stage.admin.delete_topic(name)
        return self.outcome

    def _create(self, name: str) -> None:
        assignment = [[1, 2]] * self._drawn.partitions
        self._stage.admin.create_topic(name, assignment=assignment, config={"max.message.bytes": "20000000"})
        self._topics[LIVE] = self._truth.topic(name)
        self._truth.wait_until_served(self._live)

    @property
    def _live(self) -> Topic:
        return self._topics[LIVE]

    def _step(self, step: Any) -> None:
        match step:
            case Fetch():
                self._fetch(step)
            case Produce():
                self._produce(step)
            case Pipeline():
                self._pipeline(step)
            case DeleteRecords():
                self._delete_records(step)
            case Recreate():
                self._recreate(step)
            case MoveLeader():
                self._move_leader(step)
            case Pause():
                time.sleep(step.seconds)
                self._note(f"PAUSE {step.seconds} s")

    def _report(self, violations: Sequence[Violation]) -> None:
        self.outcome.violations += [each for each in violations if each.kind not in self._ignored]

    def _note(self, text: str) -> None:
        self.outcome.history.append(text)

    # ------------------------------------------------------------------------------------------------------ writing

    def _make_values(self, count: int, size: int) -> list[bytes]:
        self._values += 1
        start = f"{self._live.topic_id}:{self._values}:"
        return [f"{start}{number}:".encode().ljust(size, b"x") for number in range(count)]

    def _produce(self, step: Produce) -> None:
        records = build_batch(step.magic, self._make_values(step.count, step.size), step.codec)
        if step.through:
            oldest, newest = self._other.versions()[Apis.PRODUCE]
            wanted = {2: 9, 1: 2, 0: 0}[step.magic]
            version = max(min(wanted, newest), oldest)
            if version > 2 > step.magic:
                records = build_batch(2, self._make_values(step.count, step.size), step.codec)
            offset = send_produce(self._other, version, self._live, step.partition, records)
        else:
            offset = self._truth.produce(
                self._live, step.partition, self._make_values(step.count, step.size), step.codec
            )
        self._live.produced_s[step.partition] = time.monotonic()
        where = "through Sidefetch" if step.through else "directly"
        self._note(f"PRODUCE {where} {step.count} x {step.size} B to {step.partition}: offset {offset}")

    def _delete_records(self, step: DeleteRecords) -> None:
        start, watermark, _ = self._truth.bounds(self._live, step.partition)
        before = start + int((watermark - start) * step.fraction)
        self._truth.refresh(self._live, step.partition)
        self._stage.admin.delete_records(self._live.name, step.partition, before)
        self._live.changed_s[step.partition] = time.monotonic()
        self._note(f"DELETE RECORDS of {step.partition} before {before}")

    def _move_leader(self, step: MoveLeader) -> None:
        """Fetch while broker 2 leads a partition, from where the reader is: the twin cannot ask for its bounds."""
        name, partition = self._live.name, step.partition
        asks = tuple(attrs.evolve(ask, place="next") for ask in step.meanwhile.asks)
        for node_id, fetch in ((2, attrs.evolve(step.meanwhile, asks=asks)), (1, None)):
            self._stage.admin.move_leader(name, partition, node_id)
            self._live.changed_s[partition] = time.monotonic()
            self._note(f"MOVE LEADER of {partition} to broker {node_id}")
            if fetch is not None:
                self._fetch(fetch)
        self._truth.wait_until_served(self._live)
        self._live.epochs = self._truth.topic(name).epochs
        self._live.changed_s[partition] = time.monotonic()

    def _recreate(self, step: Recreate) -> None:
        old = self._live
        self._stage.admin.delete_topic(old.name)
        self._create(old.name)
        self._live.predecessor = old.topic_id
        self._is_unnoticed = True
        now = time.monotonic()
        self._live.changed_s = dict.fromkeys(range(self._drawn.partitions), now)
        for partition in range(self._drawn.partitions if step.count else 0):
            self._truth.produce(self._live, partition, self._make_values(step.count, 100))
        self._note(f"RECREATE {old.name} with {step.count} records in each partition")

    # ------------------------------------------------------------------------------------------------------ reading

    def _fetch(self, step: Fetch) -> None:
        oldest, newest = self._tested.versions()[Apis.FETCH]
        version = min(max(step.version, oldest), newest)
        step = attrs.evolve(step, version=version)
        asks = self._not_held(step.asks)
        named = [self._partition(ask, version) for ask in asks]
        slots = {each.key: (ask.topic, ask.partition) for ask, each in zip(asks, named, strict=True)}
        named += self._odd(step, named)
        if step.oddity == "nothing":
            named = []
        use = step.session if version >= 7 else "none"
        if use == "go on" and (self._session_id == 0 or self._has_ids != (version >= 13)):
            use = "new"
        if use in ("wrong epoch", "unknown id") or (use == "close" and self._session_id):
            self._fetch_amiss(step, use)
            return
        if use in ("new", "go on"):
            named = list({each.key: each for each in named}.values())
        self._fetch_well(step, use, named, slots)

    def _fetch_well(self, step: Fetch, use: str, named: list[Partition], slots: dict[Key, tuple[str, int]]) -> None:
        wanted = {each.key: each for each in named}
        sent, forgotten, session = named, [], (0, -1)
        is_incremental = use == "go on"
        if is_incremental:
            forgotten = [key for key in self._entries if key not in wanted]
            sent = [each for key, each in wanted.items() if self._entries.get(key) != each]
            for key in forgotten:
                del self._entries[key]
            self._entries |= wanted
            wanted = self._entries
            session = (self._session_id, self._epoch)
        elif use == "new":
            self._entries = dict(wanted)
            session = (self._session_id, 0)
        query = Query(
            step.version,
            step.isolation if step.version >= 4 else 0,
            step.max_wait_ms,
            step.min_bytes,
            step.max_bytes,
            tuple(sent),
            tuple(wanted.values()) if use != "none" else tuple(named),
            is_incremental,
        )
        before = self._truth.twin(query, step.replica_id)
        is_due = _is_due(query, self._certain(step, query, before))
        will_be_due = query.min_bytes <= 1 and any(
            each.key == (self._name(LIVE, step.version), produce.partition) and each.offset == part.high_watermark
            for produce in step.during
            for each, part in zip(query.wanted, before.parts, strict=False)
            if each.key == part.key and not part.error
        )
        if (is_due or will_be_due) and query.max_wait_ms:
            query = attrs.evolve(query, max_wait_ms=_LONG_WAIT_MS)
        empty = LIVE if step.oddity == "empty topic" else None
        values = fetch_values(
            query,
            sent,
            session=session,
            forgotten=forgotten,
            replica_id=step.replica_id,
            empty_topic=self._name(empty, step.version) if empty else None,
        )
        self._note(f"FETCH {_describe(query, session, forgotten, step)}")
        began = time.monotonic()
        self._tested.send(Apis.FETCH, step.version, values)
        for produce in step.during:
            self._produce(produce)
        during_s = time.monotonic() - began
        answer = self._receive(query, began)
        after = self._truth.twin(query, step.replica_id)
        wait_s = 0.0 if is_due or will_be_due else query.max_wait_ms / 1000
        allowed_s = wait_s + during_s + _AT_ONCE_S + 20 * max(before.elapsed_s, after.elapsed_s)
        if step.version < 4:
            allowed_s += answer.size * _CONVERSION_S_PER_BYTE
        self._note(f"  {_describe_answer(answer)}\n  leader before: {_describe_answer(before)}")
        case = self._case(query, answer, before, after, allowed_s)
        self._report(judge(case, self._seen, self._session if use != "none" else None))
        self._learn(use, step, answer, slots)

    def _certain(self, step: Fetch, query: Query, before: Answer) -> Answer:
        """Return *before* without the parts that do not require an early response.

        Sidefetch asks by topic id for clients that name topics. A broker answers at once that an id is unknown only
        if
        the fetch has no other partitions (Kafka's ``KafkaApis.handleFetchRequest``). And an offset that is out of
        range may be within it once further records are produced.
        """
        live = self._name(LIVE, query.version)
        produced = {(live, produce.partition) for produce in step.during}
        topics = {each.key[0] for each in query.wanted}
        is_late = self._is_unnoticed and query.version < 13 and live in topics
        self._is_unnoticed &= not is_late
        parts = (
            attrs.evolve(part, error=0) if part.key in produced else part
            for part in before.parts
            if not (is_late and part.key[0] == live and len(topics) > 1)
        )
        return attrs.evolve(before, parts=tuple(parts))

    def _receive(self, query: Query, began: float) -> Answer:
        values = self._tested.receive(query.max_wait_ms / 1000 + 15)
        self.outcome.requests += 1
        return read_answer(values, time.monotonic() - began)

    def _case(self, query: Query, answer: Answer, before: Answer, after: Answer, allowed_s: float) -> Case:
        by_name = {name: topic for topic in self._topics.values() for name in (topic.name, str(topic.topic_id))}
        logs, young, lagging, incarnations = {}, set(), set(), {}
        errors = {part.key: part.error for part in after.parts}
        now = time.monotonic()
        old_s = now - answer.elapsed_s - YOUNG_S
        for part in answer.parts:
            topic = by_name.get(part.key[0])
            if topic is None or part.key[1] >= topic.partitions:
                continue
            if part.records and not errors.get(part.key):
                self._truth.refresh(topic, part.key[1])
            logs[part.key] = topic.log(part.key[1])
            incarnations[part.key] = (topic.topic_id, topic.epochs[part.key[1]])
        for each in query.wanted:
            topic = by_name.get(each.key[0])
            if topic is not None and topic.changed_s.get(each.key[1], -math.inf) > old_s:
                young.add(each.key)
            if topic is not None and topic.produced_s.get(each.key[1], -math.inf) > old_s:
                lagging.add(each.key)
            if topic is None and self._live.predecessor and each.key[0] == str(self._live.predecessor):
                young.add(each.key)
            if topic is not None and each.key[1] < topic.partitions:
                logs.setdefault(each.key, topic.log(each.key[1]))
        return Case(
            query,
            answer,
            before,
            after,
            logs,
            allowed_s,
            frozenset(young),
            incarnations,
            lagging=frozenset(() if self._stage.has_leader_reads else lagging),
            has_leader_reads=self._stage.has_leader_reads,
            is_direct=self._stage.is_direct,
        )

    def _learn(self, use: str, step: Fetch, answer: Answer, slots: dict[Key, tuple[str, int]]) -> None:
        if use == "new":
            self._session_id, self._epoch = answer.session_id, 1
            self._has_ids = step.version >= 13
            self._session.high_watermarks = {
                part.key: -1 if part.error else part.high_watermark for part in answer.parts
            }
        elif use == "go on":
            self._epoch += 1
            self._session_id = answer.session_id
        for part in answer.parts:
            if part.key in slots and part.records and not part.error:
                slot = self._slots[slots[part.key]]
                slot.next = max(_next_offset(part.records, step.version), slot.last)
                slot.held = self._drawn.hold

    def _fetch_amiss(self, step: Fetch, use: str) -> None:
        """Send a fetch that a broker refuses, or close the session."""
        session, expected = {
            "wrong epoch": ((self._session_id, self._epoch + 5), 71 if self._session_id else 0),
            "unknown id": ((1_999_999_999, 7), 70),
            "close": ((self._session_id, -1), 0),
        }[use]
        if use == "wrong epoch" and not self._session_id:
            return
        query = Query(step.version, 0, 0, 1, 1 << 20, (), ())
        self._note(f"FETCH v{step.version} {use}: session {session}")
        began = time.monotonic()
        self._tested.send(Apis.FETCH, step.version, fetch_values(query, (), session=session))
        answer = self._receive(query, began)
        self._note(f"  {_describe_answer(answer)}")
        if use == "close":
            self._session_id = 0
            self._entries = {}
        if answer.error != expected and not (use == "wrong epoch" and self._has_ids != (step.version >= 13)):
            self._report([Violation("session-error", f"{use}: error {answer.error}, expected {expected}")])

    def _close_session(self) -> None:
        if self._session_id and not self.outcome.violations:
            query = Query(13 if self._has_ids else 12, 0, 0, 1, 1, (), ())
            self._tested.ask(Apis.FETCH, query.version, fetch_values(query, (), session=(self._session_id, -1)))

    def _not_held(self, asks: Sequence[Ask]) -> list[Ask]:
        """Leave out the partitions whose records the reader still holds, unless that are all."""
        found = []
        for ask in asks:
            slot = self._slots.setdefault((ask.topic, ask.partition), _Slot())
            if slot.held:
                slot.held -= 1
            else:
                found.append(ask)
        return found or list(asks)

    def _name(self, topic: str, version: int) -> str:
        found = self._topics[topic]
        return str(found.topic_id) if version >= 13 else found.name

    def _partition(self, ask: Ask, version: int) -> Partition:
        topic = self._topics[ask.topic]
        slot = self._slots[ask.topic, ask.partition]
        slot.last = slot.next = self._offset(ask, topic, slot)
        epochs = {"none": -1, "right": topic.epochs[ask.partition], "new": topic.epochs[ask.partition] + 3}
        epochs["old"] = max(topic.epochs[ask.partition] - 1, 0)
        return Partition(
            (self._name(ask.topic, version), ask.partition),
            slot.next,
            ask.max_bytes,
            epochs[ask.leader_epoch] if version >= 9 else -1,
            epochs[ask.last_epoch] if version >= 12 else -1,
        )

    def _offset(self, ask: Ask, topic: Topic, slot: _Slot) -> int:
        if ask.place == "next":
            return slot.next
        if ask.place == "again":
            return slot.last
        start, watermark, _ = self._truth.bounds(topic, ask.partition)
        places: dict[str, Callable[[], float]] = {
            "start": lambda: start,
            "end": lambda: watermark,
            "fraction": lambda: start + int((watermark - start) * ask.amount),
            "back": lambda: max(slot.next - ask.amount, start),
            "below": lambda: start - ask.amount,
            "beyond": lambda: watermark + ask.amount,
        }
        return int(places[ask.place]())

    def _odd(self, step: Fetch, named: Sequence[Partition]) -> Iterator[Partition]:
        """Yield partitions that no careful client asks for."""
        limit = 1 << 16
        match step.oddity:
            case "unknown topic":
                name = str(uuid.UUID(int=77)) if step.version >= 13 else "raw-no-such-topic"
                yield Partition((name, 0), 0, limit)
            case "unknown partition":
                yield Partition((self._name(LIVE, step.version), 99), 0, limit)
            case "old id" if step.version >= 13 and self._live.predecessor:
                yield Partition((str(self._live.predecessor), 0), 0, limit)
            case "twice" if named:
                yield named[-1]
            case "twice apart" if named:
                yield named[0]

    # ---------------------------------------------------------------------------------------------------- pipelines

    def _pipeline(self, step: Pipeline) -> None:
        stage, live = self._stage, self._live
        since_s = time.monotonic() - YOUNG_S
        context = pipeline.Context(
            live,
            stage.group,
            self._truth,
            self._tested,
            self._make_values,
            self._note,
            stage.has_leader_reads,
            frozenset(partition for partition, changed_s in live.changed_s.items() if changed_s > since_s),
        )
        self._report(pipeline.run(step, context))
        live.produced_s = dict.fromkeys(range(live.partitions), time.monotonic())
        self.outcome.requests += len(step.requests)


def _is_due(query: Query, before: Answer) -> bool:
    """Return whether a broker answers at once; unknown partitions hurry it only if there are no others."""
    known = [part for part in before.parts if part.error not in _UNKNOWN]
    if not known or any(part.error or part.diverges for part in known):
        return True
    if query.version < 4:
        return False
    if not query.is_incremental or query.min_bytes <= 1:
        return before.size >= query.min_bytes
    # A session is read in an order of the broker's own, and only the first partition may exceed its limit.
    limits = {each.key: each.max_bytes for each in query.wanted}
    fitting = sum(len(part.records) for part in before.parts if len(part.records) <= limits[part.key])
    return fitting >= query.min_bytes and before.size < query.max_bytes


def _next_offset(records: bytes, version: int) -> int:
    if version >= 4:
        try:
            return max((batch.last + 1 for batch in iterate_batches(records)), default=-1)
        except ValueError:
            return -1
    return max((record[0] + 1 for _, record in iterate_message_set(records)), default=-1)


def _describe(query: Query, session: tuple[int, int], forgotten: Sequence[Key], step: Fetch) -> str:
    def short(each: Partition) -> str:
        epochs = (
            f" epochs {each.leader_epoch},{each.last_epoch}"
            if (each.leader_epoch, each.last_epoch) != (-1, -1)
            else ""
        )
        return f"{each.key[0][-12:]}-{each.key[1]}@{each.offset} max {each.max_bytes}{epochs}"

    kind = "read_committed" if query.isolation else "read_uncommitted"
    text = f"v{query.version} {kind} wait {query.max_wait_ms} min {query.min_bytes} max {query.max_bytes}"
    if session != (0, -1):
        text += f" session {session}"
    if forgotten:
        text += f" forget {list(forgotten)}"
    if step.oddity != "none":
        text += f" ({step.oddity})"
    if step.replica_id != -1:
        text += f" replica {step.replica_id}"
    return f"{text}: {'; '.join(map(short, query.named)) or 'nothing named'}"


def _describe_answer(answer: Answer) -> str:
    def short(part: Any) -> str:
        if part.error:
            return f"{part.key[0][-12:]}-{part.key[1]} error {part.error}"
        offsets = f"hw {part.high_watermark} lso {part.last_stable_offset} start {part.log_start}"
        return f"{part.key[0][-12:]}-{part.key[1]} {offsets} {len(part.records)} B"

    error = f" ERROR {answer.error}" if answer.error else ""
    parts = "; ".join(map(short, answer.parts))
    return f"after {answer.elapsed_s * 1000:.0f} ms{error} session {answer.session_id}: {parts or 'no partitions'}"
