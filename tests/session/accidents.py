"""Both halves of a session against each other, with every accident that can happen to a fetch.

Invariants: while the client half believes in a session that the broker still has, both have the same partitions,
offsets and epoch. An answered fetch has read exactly the wanted partitions, and the values that it sent, now or
earlier, are true of each. A lost fetch causes no error, since the next fetch replaces the session; an accident that
cannot be noticed causes one. No accident leaves more than one session behind. In the end, everything is read.
"""

from typing import Final, Generic, Literal, Protocol, TypeVar, get_args

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.errors import ErrorCode
from proxy.session.epochs import NO_SESSION, SessionId
from proxy.session.slots import EVICTION_S, SessionSlots
from proxy.session.upstream import (
    FetchPlan,
    IncrementalFetchPlan,
    RejectedResponse,
    SessionResponseFields,
    UpstreamSession,
)
from proxy.wire.fetch import FetchPartition, PartitionKey

__all__ = ["KEYS", "SLOTS", "Accidents", "Log"]

Fate = Literal[
    "delivered",
    "throttled",
    "lost before the broker saw it",
    "lost after the broker saw it",
    "doubled, the first heard",
    "doubled, the second heard",
    "overtaken by its double",
    "evicted while it waits",
    "topic ids come or go",
]
What = Literal["want", "want no more", "touch in vain", "produce", "delete records", "break", "heal"]
KEYS: Final = [PartitionKey(topic, partition) for topic in ("a", "b") for partition in range(3)]
SLOTS: Final = 3
_LAST_EPOCH: Final = 2**31 - 1
_ERRORS: Final = {
    1: ErrorCode.offset_out_of_range,
    2: ErrorCode.unknown_topic_or_partition,
    3: ErrorCode.not_leader_or_follower,
}

_some_key = st.sampled_from(KEYS)
_some_changes = st.lists(
    st.tuples(st.sampled_from(get_args(What)), _some_key, st.integers(1, len(_ERRORS))), max_size=4
)


@attrs.define
class Log:
    """A partition, at the broker."""

    start: int = 0
    end: int = 0
    error: int = 0


class Session(Protocol):
    """A session as the broker keeps it."""

    epoch: int

    def __len__(self) -> int: ...


SessionT = TypeVar("SessionT", bound=Session)
RequestT = TypeVar("RequestT")
SeenT = TypeVar("SeenT")
"""A request at the broker, and its meaning when it arrived."""
AnswerT = TypeVar("AnswerT")


class Accidents(RuleBasedStateMachine, Generic[SessionT, RequestT, SeenT, AnswerT]):
    """The part that all halves share: a subclass has the broker's half, and the messages between them."""

    def __init__(self, slots: SessionSlots[SessionT]) -> None:
        """*slots*: the broker's."""
        super().__init__()
        self.slots = slots
        self.ours = UpstreamSession()
        self.logs = {key: Log() for key in KEYS}
        self.late: list[RequestT] = []
        self.others: set[SessionId] = set()
        self.unheard: set[SessionId] = set()
        self.now_s = 0.0
        self.accidents = self.refusals = 0

    @initialize(wanted=st.sets(_some_key), data=st.data())
    def begin(self, wanted: set[PartitionKey], data: st.DataObject) -> None:
        self.prepare(data)
        for key in wanted:
            self.change("want", key, 1)
        self.fetch([], True, "delivered")

    # -------------------------------------------------------------------------------- what a subclass says

    def prepare(self, data: st.DataObject) -> None:
        """Draw further choices before the first fetch."""

    def epoch_of(self, number: int) -> int:
        """The leader epoch that is asked with."""
        return number % 2

    def name_otherwise(self) -> None:
        """Call topics by their ids from here on; or by their names, if they were called by ids."""
        raise NotImplementedError

    def request(self, plan: FetchPlan) -> RequestT:
        raise NotImplementedError

    def see(self, request: RequestT) -> SeenT:
        """It arrives at the broker."""
        raise NotImplementedError

    def is_within_session(self, seen: SeenT) -> bool:
        raise NotImplementedError

    def answer(self, seen: SeenT) -> AnswerT:
        raise NotImplementedError

    def throttled(self, seen: SeenT) -> AnswerT:
        raise NotImplementedError

    def reply(self, answer: AnswerT) -> SessionResponseFields:
        """Return the session fields of the response."""
        raise NotImplementedError

    def check(self, seen: SeenT, answer: AnswerT) -> None:
        """Check that the wanted partitions were read, and the sent values are true; *answer* was accepted."""
        raise NotImplementedError

    def serve_another(self, size: int) -> SessionId:
        """A client comes for a session of so many partitions; 0 if it is granted none."""
        raise NotImplementedError

    def evicted(self, session_id: SessionId) -> bool:
        """Whether there was one that could be."""
        raise NotImplementedError

    def held(self, session: SessionT) -> dict[PartitionKey, FetchPartition]:
        """Return the session as the broker keeps it."""
        raise NotImplementedError

    # ----------------------------------------------------------------- what is wanted, and what there is

    @property
    def wanted(self) -> dict[PartitionKey, FetchPartition]:
        return self.ours.requested

    @property
    def listed(self) -> dict[PartitionKey, FetchPartition]:
        """Return the session as the client half believes it to be, while no fetch is in flight."""
        return {key: ask for key in KEYS if (ask := self.ours.get_planned(key)) is not None}

    def change(self, what: What, key: PartitionKey, number: int) -> None:
        log = self.logs[key]
        match what:
            case "want":
                self.ours.put(key, FetchPartition(max(log.end - number, 0), 100, self.epoch_of(number)))
            case "want no more" if key in self.wanted:
                self.ours.remove(key)
            case "want no more":
                pass
            case "touch in vain" if key in self.wanted:
                self.ours.put(key, self.wanted[key])
            case "touch in vain":
                self.ours.put(key, FetchPartition(0, 100))
                self.ours.remove(key)
            case "produce":
                log.end += number
            case "delete records":
                log.start = log.end
            case "break":
                log.error = _ERRORS[number]
            case "heal":
                log.error = 0

    @rule()
    def start_over(self) -> None:
        self.ours.restart()

    # ----------------------------------------------------------------------------------- at the broker

    @rule()
    def evict(self) -> None:
        self.accidents += self.evicted(self.ours.session_id)

    @rule(size=st.integers(1, 7), passed_s=st.sampled_from([0.0, EVICTION_S + 1]))
    def crowd(self, size: int, passed_s: float) -> None:
        """Another client comes for a session; ours may have to make room for it."""
        self.now_s += passed_s
        had_ours = self.slots.get(self.ours.session_id) is not None
        self.others.add(self.serve_another(size))
        self.accidents += had_ours and self.slots.get(self.ours.session_id) is None

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        """A request that was given up comes out of a queue somewhere; nobody waits for its answer."""
        request = self.late.pop(data.draw(st.integers(0, len(self.late) - 1)))
        self.answer_unheard(self.see(request))

    @precondition(lambda self: self.ours.session_id)
    @rule(epoch=st.integers(_LAST_EPOCH - 2, _LAST_EPOCH))
    def grow_old(self, epoch: int) -> None:
        """Years of fetches later."""
        session = self.slots.get(self.ours.session_id)
        if session is not None:
            session.epoch = epoch
            self.ours.state = IncrementalFetchPlan(self.ours.session_id, epoch)

    # ---------------------------------------------------------------------------------------- a fetch

    @rule(changes=_some_changes)
    def fetch_well(self, changes: list[tuple[What, PartitionKey, int]]) -> None:
        self.fetch(changes, True, "delivered")

    @rule(changes=_some_changes, keep=st.sampled_from([True, True, False]), fate=st.sampled_from(get_args(Fate)))
    def fetch(self, changes: list[tuple[What, PartitionKey, int]], keep: bool, fate: Fate) -> None:
        for each in changes:
            self.change(*each)
        if not self.wanted:
            self.change("want", KEYS[0], 1)
        if fate == "topic ids come or go":
            self.name_otherwise()
            self.accidents += self.ours.session_id != NO_SESSION
        plan = self.ours.plan(keep=keep)
        request = self.request(plan)
        match fate:
            case "delivered" | "topic ids come or go":
                self.deliver(plan, self.see(request))
            case "throttled":
                self.take(plan, self.throttled(self.see(request)))
            case "lost before the broker saw it":
                self.late.append(request)
                self.ours.discard_plan(plan)
            case "lost after the broker saw it":
                self.answer_unheard(self.see(request))
                self.ours.discard_plan(plan)
            case "doubled, the first heard":
                seen = self.see(request)
                answer = self.answer(seen)
                self.answer_unheard(self.see(request))
                self.hear(plan, seen, answer)
            case "doubled, the second heard":
                self.answer_unheard(self.see(request))
                self.accidents += not plan.is_full
                self.deliver(plan, self.see(request))
            case "overtaken by its double":
                seen = self.see(request)
                self.answer_unheard(self.see(request))
                self.deliver(plan, seen)
            case "evicted while it waits":
                seen = self.see(request)
                self.accidents += self.evicted(plan.session_id)
                self.deliver(plan, seen)

    @rule(seen=st.booleans())
    def farewell(self, seen: bool) -> None:
        """The client goes, and another begins where it was."""
        plan = self.ours.close()
        if plan is not None and seen:
            self.answer(self.see(self.request(plan)))
            assert self.slots.get(plan.session_id) is None
        elif plan is not None:
            self.unheard.add(plan.session_id)
        wanted, self.ours = self.wanted, UpstreamSession()
        for key, ask in wanted.items():
            self.ours.put(key, ask)

    def answer_unheard(self, seen: SeenT) -> None:
        """A session that it grants is one that we cannot know of, and one that had to make room may be ours."""
        evictions = self.slots.evictions
        answer = self.answer(seen)
        self.accidents += self.slots.evictions - evictions
        if not self.is_within_session(seen):
            self.unheard.add(self.reply(answer).session_id)

    def deliver(self, plan: FetchPlan, seen: SeenT) -> None:
        self.hear(plan, seen, self.answer(seen))

    def hear(self, plan: FetchPlan, seen: SeenT, answer: AnswerT) -> None:
        if self.take(plan, answer):
            assert self.reply(answer).error == ErrorCode.none
            self.check(seen, answer)

    def take(self, plan: FetchPlan, answer: AnswerT) -> bool:
        is_refused = isinstance(self.ours.receive(plan, self.reply(answer)), RejectedResponse)
        self.refusals += is_refused
        return not is_refused

    # ------------------------------------------------------------------------------------- what holds

    @invariant()
    def what_is_believed_of_a_live_session_is_so(self) -> None:
        session = self.slots.get(self.ours.session_id)
        if session is not None and isinstance(self.ours.state, IncrementalFetchPlan):
            held = self.held(session)
            assert held == self.listed
            assert len(session) == len(held)
            assert session.epoch == self.ours.state.epoch

    @invariant()
    def an_accident_costs_one_refusal_at_most(self) -> None:
        assert self.refusals <= self.accidents

    @invariant()
    def no_session_is_left_behind_that_we_were_told_of(self) -> None:
        """One that will not be used again is closed by the next fetch, or by the farewell."""
        held = set(self.slots._held)
        assert held <= {self.ours.state.session_id, *self.others, *self.unheard}

    def teardown(self) -> None:
        """With the accidents over and room for a session: one refusal, a full fetch, a delta, nothing to say."""
        for session_id in set(self.slots._held) - {self.ours.session_id}:
            self.evicted(session_id)
        self.change("want", KEYS[0], 1)
        for _ in range(3):
            self.fetch([], True, "delivered")

        plan = self.ours.plan(keep=True)
        assert (plan.requested, plan.forgotten) == ({}, ())
        assert not plan.is_full
        self.deliver(plan, self.see(self.request(plan)))
        assert self.ours.session_id != NO_SESSION
        for key, ask in self.wanted.items():
            assert self.logs[key].error or ask.offset == self.logs[key].end
