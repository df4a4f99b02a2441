"""Both halves of a session against each other, with every accident that can happen to a fetch on its way.

What holds at any time: as long as we believe in a session that the broker still has, both mean the same
partitions, asks and epoch. A fetch that was answered in earnest has read exactly what was wanted, and what it told,
now or earlier, is true of every partition. A loss costs no refusal, since the next fetch replaces the session; what
we could not have seen coming costs one. No accident leaves more than one session behind. In the end, all is read.
"""

from itertools import count
from typing import Final, Literal, get_args

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.errors import ErrorCode
from proxy.session import downstream
from proxy.session.downstream import Context, SessionCache, SessionRequest, State
from proxy.session.epochs import INITIAL_EPOCH, NO_SESSION, SessionId
from proxy.session.slots import EVICTION_S
from proxy.session.upstream import Incremental, Plan, Refused, SessionReply, UpstreamSession
from proxy.wire.fetch import Ask, Key
from tests.strategies import steps

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
KEYS: Final = [Key(topic, partition) for topic in ("a", "b") for partition in range(3)]
SLOTS: Final = 3
LAST_EPOCH: Final = 2**31 - 1

some_key = st.sampled_from(KEYS)
some_changes = st.lists(st.tuples(st.sampled_from(get_args(What)), some_key, st.integers(1, 3)), max_size=4)


@attrs.define
class Log:
    """A partition, at the broker."""

    start: int = 0
    end: int = 0
    error: int = 0

    def read(self, offset: int) -> State:
        if self.error:
            return State(-1, -1, error=self.error)
        return State(self.end, self.start, has_records=offset < self.end)


@attrs.frozen
class Seen:
    """A request at the broker, and what it meant there when it arrived."""

    context: Context
    asks: dict[Key, downstream.Ask]


class SessionAgreement(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        ids = count(1)
        self.cache = SessionCache(SLOTS, lambda: next(ids))
        self.ours = UpstreamSession()
        self.logs = {key: Log() for key in KEYS}
        self.told: dict[Key, State] = {}
        self.late: list[SessionRequest] = []
        self.others: set[SessionId] = set()
        self.unheard: set[SessionId] = set()
        self.by_id = False
        self.now_s = 0.0
        self.accidents = self.refusals = 0

    @initialize(wanted=st.sets(some_key))
    def begin(self, wanted: set[Key]) -> None:
        for key in wanted:
            self.change("want", key, 1)
        self.fetch([], True, "delivered")

    # ----------------------------------------------------------------- what is wanted, and what there is

    @property
    def wanted(self) -> dict[Key, Ask]:
        return self.ours.asks

    @property
    def listed(self) -> dict[Key, Ask]:
        """What we believe that the broker remembers, while nothing is under way."""
        return {key: ask for key in KEYS if (ask := self.ours.asked(key)) is not None}

    def change(self, what: What, key: Key, number: int) -> None:
        log = self.logs[key]
        match what:
            case "want":
                self.ours.put(key, Ask(max(log.end - number, 0), max_bytes=100, epoch=number % 2))
            case "want no more" if key in self.wanted:
                self.ours.take_out(key)
            case "want no more":
                pass
            case "touch in vain" if key in self.wanted:
                self.ours.put(key, self.wanted[key])
            case "touch in vain":
                self.ours.put(key, Ask(0, 100))
                self.ours.take_out(key)
            case "produce":
                log.end += number
            case "delete records":
                log.start = log.end
            case "break":
                log.error = number
            case "heal":
                log.error = 0

    @rule()
    def start_over(self) -> None:
        self.ours.restart()

    # ----------------------------------------------------------------------------------- at the broker

    @rule()
    def evict(self) -> None:
        if self.cache.evict(self.ours.session_id):
            self.accidents += 1

    @rule(size=st.integers(1, 7), passed_s=st.sampled_from([0.0, EVICTION_S + 1]))
    def crowd(self, size: int, passed_s: float) -> None:
        """Another client comes for a session; ours may have to make room for it."""
        self.now_s += passed_s
        asks: dict[downstream.Key, downstream.Ask] = {("other", n): downstream.Ask(0, 1) for n in range(size)}
        context = self.cache.open(SessionRequest(NO_SESSION, INITIAL_EPOCH, asks), self.now_s)
        had_ours = self.cache._slots.get(self.ours.session_id) is not None
        self.others.add(context.answer({key: State(0) for key in asks}, self.now_s).session_id)
        if had_ours and self.cache._slots.get(self.ours.session_id) is None:
            self.accidents += 1

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        """A request that was given up comes out of a queue somewhere; nobody waits for its answer."""
        request = self.late.pop(data.draw(st.integers(0, len(self.late) - 1)))
        self.answer_unheard(self.see(request))

    @precondition(lambda self: self.ours.session_id)
    @rule(epoch=st.integers(LAST_EPOCH - 2, LAST_EPOCH))
    def grow_old(self, epoch: int) -> None:
        """Years of fetches later."""
        session = self.cache._slots.get(self.ours.session_id)
        if session is not None:
            session.epoch = epoch
            self.ours.state = Incremental(self.ours.session_id, epoch)

    # ---------------------------------------------------------------------------------------- a fetch

    @rule(changes=some_changes)
    def fetch_well(self, changes: list[tuple[What, Key, int]]) -> None:
        self.fetch(changes, True, "delivered")

    @rule(
        changes=some_changes,
        keep=st.sampled_from([True, True, False]),
        fate=st.sampled_from(get_args(Fate)),
    )
    def fetch(self, changes: list[tuple[What, Key, int]], keep: bool, fate: Fate) -> None:
        for each in changes:
            self.change(*each)
        if not self.wanted:
            self.change("want", KEYS[0], 1)
        if fate == "topic ids come or go":
            self.by_id = not self.by_id
            self.accidents += self.ours.session_id != NO_SESSION
        plan = self.ours.plan(keep=keep)
        request = self.request(plan)
        match fate:
            case "delivered" | "topic ids come or go":
                self.deliver(plan, self.see(request))
            case "throttled":
                self.deliver_throttled(plan, self.see(request))
            case "lost before the broker saw it":
                self.late.append(request)
                self.ours.lost(plan)
            case "lost after the broker saw it":
                self.answer_unheard(self.see(request))
                self.ours.lost(plan)
            case "doubled, the first heard":
                seen = self.see(request)
                reply = self.answer(seen)
                self.answer_unheard(self.see(request))
                self.hear(plan, seen, reply)
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
                self.accidents += self.cache.evict(plan.session_id)
                self.deliver(plan, seen)

    @rule(seen=st.booleans())
    def farewell(self, seen: bool) -> None:
        """The client goes, and another begins where it was."""
        plan = self.ours.farewell()
        if plan is not None and seen:
            self.answer(self.see(self.request(plan)))
            assert self.cache._slots.get(plan.session_id) is None
        elif plan is not None:
            self.unheard.add(plan.session_id)
        wanted, self.ours = self.wanted, UpstreamSession()
        for key, ask in wanted.items():
            self.ours.put(key, ask)

    def request(self, plan: Plan) -> SessionRequest:
        asks: dict[downstream.Key, downstream.Ask] = {heard(key): as_heard(ask) for key, ask in plan.asks.items()}
        forgotten: list[downstream.Key] = [heard(key) for key in plan.forgotten]
        return SessionRequest(plan.session_id, plan.epoch, asks, forgotten, self.by_id)

    def see(self, request: SessionRequest) -> Seen:
        context = self.cache.open(request, self.now_s)
        return Seen(context, {Key(str(key[0]), key[1]): ask for key, ask in context.partitions()})

    def states(self, seen: Seen) -> dict[Key, State]:
        return {key: self.logs[key].read(ask.offset) for key, ask in seen.asks.items()}

    def answer(self, seen: Seen) -> downstream.Answer:
        results: dict[downstream.Key, State] = {heard(key): state for key, state in self.states(seen).items()}
        return seen.context.answer(results, self.now_s)

    def answer_unheard(self, seen: Seen) -> None:
        """A session that it grants is one that we cannot know of, and one that had to make room may be ours."""
        evictions = self.cache.evictions
        answer = self.answer(seen)
        self.accidents += self.cache.evictions - evictions
        if not isinstance(seen.context, downstream.Incremental):
            self.unheard.add(answer.session_id)

    def deliver(self, plan: Plan, seen: Seen) -> None:
        self.hear(plan, seen, self.answer(seen))

    def hear(self, plan: Plan, seen: Seen, answer: downstream.Answer) -> None:
        states = self.states(seen)
        keys = [Key(str(topic), partition) for topic, partition in answer.keys]
        outcome = self.ours.receive(plan, SessionReply(answer.error, answer.session_id, 0, keys))
        if isinstance(outcome, Refused):
            self.refusals += 1
            return
        assert answer.error == ErrorCode.none
        assert seen.asks == {key: as_heard(ask) for key, ask in self.wanted.items()}
        self.told |= {key: states[key] for key in keys}
        for key, ask in dict(self.wanted).items():
            told, true = self.told[key], states[key]
            assert (told.high_watermark, told.log_start, told.error) == (
                true.high_watermark,
                true.log_start,
                true.error,
            )
            if true.has_records:
                assert key in keys
                self.ours.put(key, ask._replace(offset=self.logs[key].end))

    def deliver_throttled(self, plan: Plan, seen: Seen) -> None:
        answer = seen.context.throttled()
        outcome = self.ours.receive(plan, SessionReply(answer.error, answer.session_id, 100, []))
        if isinstance(outcome, Refused):
            self.refusals += 1

    # ------------------------------------------------------------------------------------- what holds

    @invariant()
    def what_is_believed_of_a_live_session_is_so(self) -> None:
        session = self.cache._slots.get(self.ours.session_id)
        if session is not None and isinstance(self.ours.state, Incremental):
            assert {key: entry.ask for key, entry in session.entries.items()} == {
                key: as_heard(ask) for key, ask in self.listed.items()
            }
            assert session.epoch == self.ours.state.epoch

    @invariant()
    def an_accident_costs_one_refusal_at_most(self) -> None:
        assert self.refusals <= self.accidents

    @invariant()
    def no_session_is_left_behind_that_we_were_told_of(self) -> None:
        """One that will not be used again is closed by the next fetch, or by the farewell."""
        held = set(self.cache._slots._held)
        assert held <= {self.ours.state.session_id, *self.others, *self.unheard}

    def teardown(self) -> None:
        """With the accidents over and room for a session: one refusal, a full fetch, a delta, nothing to say."""
        for session_id in set(self.cache._slots._held) - {self.ours.session_id}:
            self.cache.evict(session_id)
        self.change("want", KEYS[0], 1)
        for _ in range(3):
            self.deliver(*self.sent())

        plan, seen = self.sent()
        assert (plan.asks, plan.forgotten) == ({}, ())
        assert not plan.is_full
        self.deliver(plan, seen)
        assert self.ours.session_id != NO_SESSION
        for key, ask in self.wanted.items():
            assert self.logs[key].error or ask.offset == self.logs[key].end

    def sent(self) -> tuple[Plan, Seen]:
        plan = self.ours.plan(keep=True)
        return plan, self.see(self.request(plan))


def heard(key: Key) -> downstream.Key:
    return str(key.topic), key.partition


def as_heard(ask: Ask) -> downstream.Ask:
    return downstream.Ask(ask.offset, ask.max_bytes, ask.epoch, ask.last_fetched_epoch)


TestSessionAgreement = SessionAgreement.TestCase
TestSessionAgreement.settings = steps(40, runs=300)
