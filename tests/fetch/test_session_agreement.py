"""Our broker's half of a session against our own client half, over the bytes that pass between them.

As ``tests.session.test_agreement`` has it of the halves that know no bytes; and clients come on other connections,
for which readers know nothing of before. What a client was told, now or earlier, is true of every partition that it
wants, whatever was lost, doubled, overtaken or evicted in between. In the end, all is read.
"""

from itertools import count
from typing import Final, get_args

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proxy.errors import ErrorCode
from proxy.fetch.client_sessions import ClientSessions, Context
from proxy.fetch.client_sessions import Incremental as IncrementalContext
from proxy.fetch.exchange import Exchange
from proxy.session.epochs import INITIAL_EPOCH, NO_SESSION, SessionId
from proxy.session.slots import EVICTION_S
from proxy.session.upstream import Incremental, Plan, Refused, SessionReply, UpstreamSession
from proxy.wire.fetch import Ask, FetchRequest, FetchResponse, Key, PartitionReply, Topic
from tests.fetch.desk import Connection, asked_by, fetch_of, read, wanted_of
from tests.fetch.requests import topic_id
from tests.session.test_agreement import KEYS, LAST_EPOCH, SLOTS, Fate, Log, What
from tests.strategies import steps

NODE: Final = 1
IDS: Final = {"a": topic_id(1), "b": topic_id(2)}
NAMES: Final = {topic: name for name, topic in IDS.items()}
BY_NAME: Final = (7, 9, 11, 12)
BY_ID: Final = (13, 18)

some_key = st.sampled_from(KEYS)
some_changes = st.lists(st.tuples(st.sampled_from(get_args(What)), some_key, st.integers(1, 3)), max_size=4)


@attrs.frozen
class Seen:
    """A request, and what it meant when it arrived."""

    context: Context
    asks: dict[Key, Ask]
    """By name."""


class WireAgreement(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        ids = count(1)
        self.sessions = ClientSessions(SLOTS, lambda: next(ids))
        self.connection = Connection()
        self.ours = UpstreamSession()
        self.logs = {key: Log() for key in KEYS}
        self.told: dict[Key, tuple[int, int, int]] = {}
        """(error, high watermark, log start)"""
        self.late: list[FetchRequest] = []
        self.others: set[int] = set()
        self.unheard: set[int] = set()
        self.version = BY_NAME[0]
        self.now_s = 0.0
        self.accidents = self.refusals = 0

    @initialize(wanted=st.sets(some_key), version=st.sampled_from((*BY_NAME, *BY_ID)))
    def begin(self, wanted: set[Key], version: int) -> None:
        self.version = version
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
                epoch = number % 2 if self.version >= 9 else -1
                self.ours.put(key, Ask(max(log.end - number, 0), 100, epoch))
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
                log.error = ErrorCode.not_leader_or_follower
            case "heal":
                log.error = 0

    @rule()
    def start_over(self) -> None:
        self.ours.restart()

    @rule()
    def reconnect(self) -> None:
        self.connection = Connection()

    @rule(version=st.sampled_from(BY_NAME))
    def speak_another_version(self, version: int) -> None:
        """One that names topics in the same way."""
        if self.version in BY_NAME:
            self.version = version
            if version < 9 and self.wanted:
                for key, ask in dict(self.wanted).items():
                    self.ours.put(key, ask._replace(epoch=-1))
                self.ours.restart()

    # ------------------------------------------------------------------------------------------ accidents

    @rule()
    def evict(self) -> None:
        self.accidents += self.sessions.close(self.ours.session_id, NODE)

    @rule(size=st.integers(1, 7), passed_s=st.sampled_from([0.0, EVICTION_S + 1]))
    def crowd(self, size: int, passed_s: float) -> None:
        """Another client comes for a session; ours may have to make room for it."""
        self.now_s += passed_s
        asks = {Key("other", number): Ask(0, 1) for number in range(size)}
        had_ours = self.session_size() is not None
        context = self.sessions.open(fetch_of(12, NO_SESSION, INITIAL_EPOCH, asks), NODE, self.now_s)
        self.others.add(Connection().answer(context, {}, ()).session_id)
        self.accidents += had_ours and self.session_size() is None

    @precondition(lambda self: self.late)
    @rule(data=st.data())
    def arrive_late(self, data: st.DataObject) -> None:
        """A request that was given up comes out of a queue somewhere; nobody waits for its answer."""
        self.answer_unheard(self.see(self.late.pop(data.draw(st.integers(0, len(self.late) - 1)))))

    @precondition(lambda self: self.ours.session_id)
    @rule(epoch=st.integers(LAST_EPOCH - 2, LAST_EPOCH))
    def grow_old(self, epoch: int) -> None:
        """Years of fetches later."""
        session = self.sessions._slots.get(self.ours.session_id)
        if session is not None:
            session.epoch = epoch
            self.ours.state = Incremental(self.ours.session_id, epoch)

    # ---------------------------------------------------------------------------------------- a fetch

    @rule(changes=some_changes)
    def fetch_well(self, changes: list[tuple[What, Key, int]]) -> None:
        self.fetch(changes, True, "delivered")

    @rule(changes=some_changes, keep=st.sampled_from([True, True, False]), fate=st.sampled_from(get_args(Fate)))
    def fetch(self, changes: list[tuple[What, Key, int]], keep: bool, fate: Fate) -> None:
        for each in changes:
            self.change(*each)
        if not self.wanted:
            self.change("want", KEYS[0], 1)
        if fate == "topic ids come or go":
            self.version = BY_ID[0] if self.version in BY_NAME else BY_NAME[-1]
            self.accidents += self.ours.session_id != NO_SESSION
        plan = self.ours.plan(keep=keep)
        request = self.request(plan)
        match fate:
            case "delivered" | "topic ids come or go":
                self.hear_answer(plan, self.see(request))
            case "throttled":
                context = self.see(request).context
                exchange = Exchange(context.request, 0.0, context=context, throttle_ms=100)
                self.receive(plan, read(self.version, exchange.empty()))
            case "lost before the broker saw it":
                self.late.append(request)
                self.ours.lost(plan)
            case "lost after the broker saw it":
                self.answer_unheard(self.see(request))
                self.ours.lost(plan)
            case "doubled, the first heard":
                seen = self.see(request)
                response = self.answer(seen)
                self.answer_unheard(self.see(request))
                self.hear(plan, seen, response)
            case "doubled, the second heard":
                self.answer_unheard(self.see(request))
                self.accidents += not plan.is_full
                self.hear_answer(plan, self.see(request))
            case "overtaken by its double":
                seen = self.see(request)
                self.answer_unheard(self.see(request))
                self.hear_answer(plan, seen)
            case "evicted while it waits":
                seen = self.see(request)
                self.accidents += self.sessions.close(plan.session_id, NODE)
                self.hear_answer(plan, seen)

    @rule(seen=st.booleans())
    def farewell(self, seen: bool) -> None:
        """The client goes, and another begins where it was."""
        plan = self.ours.farewell()
        if plan is not None and seen:
            self.answer(self.see(self.request(plan)))
            assert not self.sessions.topics(plan.session_id, NODE)
        elif plan is not None:
            self.unheard.add(plan.session_id)
        wanted, self.ours = self.wanted, UpstreamSession()
        for key, ask in wanted.items():
            self.ours.put(key, ask)

    def request(self, plan: Plan) -> FetchRequest:
        asks = {self.sent(key): ask for key, ask in plan.asks.items()}
        return fetch_of(self.version, plan.session_id, plan.epoch, asks, map(self.sent, plan.forgotten))

    def see(self, request: FetchRequest) -> Seen:
        context = self.sessions.open(request, NODE, self.now_s)
        return Seen(context, {named(key): ask for key, ask in wanted_of(context).items()})

    def answer(self, seen: Seen) -> FetchResponse:
        if not seen.asks:
            request = seen.context.request
            return read(request.version, Exchange(request, 0.0, context=seen.context).empty())
        by_id = seen.context.request.by_id
        offsets: dict[Key, tuple[int, int, int]] = {}
        news: list[tuple[Topic, PartitionReply]] = []
        for key, ask in seen.asks.items():
            log, sent = self.logs[key], _sent(key, by_id=by_id)
            if log.error:
                news.append((sent.topic, PartitionReply(key.partition, log.error, -1)))
                continue
            offsets[sent] = (log.end, log.end, log.start)
            if ask.offset < log.end:
                records = b"r" * (log.end - ask.offset)
                news.append(
                    (sent.topic, PartitionReply(key.partition, 0, log.end, log.end, log.start, records=records))
                )
        return self.connection.answer(seen.context, offsets, news)

    def answer_unheard(self, seen: Seen) -> None:
        """A session that it grants is one that we cannot know of, and one that had to make room may be ours."""
        evictions = self.sessions.evictions
        response = self.answer(seen)
        self.accidents += self.sessions.evictions - evictions
        if not isinstance(seen.context, IncrementalContext):
            self.unheard.add(response.session_id)

    def hear_answer(self, plan: Plan, seen: Seen) -> None:
        self.hear(plan, seen, self.answer(seen))

    def receive(self, plan: Plan, response: FetchResponse) -> dict[Key, PartitionReply] | None:
        """The partitions told; None for a refusal."""
        replies = {named(Key(topic, each.partition)): each for topic, parts in response.topics for each in parts}
        reply = SessionReply(response.error, SessionId(response.session_id), response.throttle_ms, list(replies))
        if isinstance(self.ours.receive(plan, reply), Refused):
            self.refusals += 1
            return None
        return replies

    def hear(self, plan: Plan, seen: Seen, response: FetchResponse) -> None:
        replies = self.receive(plan, response)
        if replies is None:
            return
        assert response.error == ErrorCode.none
        assert seen.asks == self.wanted
        self.told |= {
            key: (each.error, each.high_watermark, each.log_start_offset) for key, each in replies.items()
        }
        for key, ask in dict(self.wanted).items():
            log = self.logs[key]
            assert self.told[key] == ((log.error, -1, -1) if log.error else (0, log.end, log.start))
            if not log.error and ask.offset < log.end:
                assert len(replies[key].records) == log.end - ask.offset
                self.ours.put(key, ask._replace(offset=log.end))

    def sent(self, key: Key) -> Key:
        return _sent(key, by_id=self.version in BY_ID)

    def session_size(self) -> int | None:
        session = self.sessions._slots.get(self.ours.session_id)
        return None if session is None else len(session)

    # ------------------------------------------------------------------------------------- what holds

    @invariant()
    def what_is_believed_of_a_live_session_is_so(self) -> None:
        session = self.sessions._slots.get(self.ours.session_id)
        if session is not None and isinstance(self.ours.state, Incremental):
            whole = attrs.evolve(fetch_of(session._layout.version, 0, 0, {}), sections=session.sections)
            held = {named(key): ask for key, ask in asked_by(whole).items()}
            assert held == self.listed
            assert len(session) == len(held)
            assert session.epoch == self.ours.state.epoch

    @invariant()
    def an_accident_costs_one_refusal_at_most(self) -> None:
        assert self.refusals <= self.accidents

    @invariant()
    def no_session_is_left_behind_that_we_were_told_of(self) -> None:
        held = set(self.sessions._slots._held)
        assert held <= {self.ours.state.session_id, *self.others, *self.unheard}

    def teardown(self) -> None:
        """With the accidents over and room for a session: one refusal, a full fetch, a delta, nothing to say."""
        for session_id in set(self.sessions._slots._held) - {self.ours.session_id}:
            self.sessions.close(session_id, NODE)
        self.change("want", KEYS[0], 1)
        for _ in range(3):
            self.fetch([], True, "delivered")

        plan = self.ours.plan(keep=True)
        assert (plan.asks, plan.forgotten) == ({}, ())
        assert not plan.is_full
        response = self.answer(self.see(self.request(plan)))
        assert {each.error for _, parts in response.topics for each in parts} <= {6}
        assert self.ours.session_id != NO_SESSION
        for key, ask in self.wanted.items():
            assert self.logs[key].error or ask.offset == self.logs[key].end


def _sent(key: Key, *, by_id: bool) -> Key:
    return Key(IDS[str(key.topic)], key.partition) if by_id else key


def named(key: Key) -> Key:
    return Key(key.topic if isinstance(key.topic, str) else NAMES[key.topic], key.partition)


TestWireAgreement = WireAgreement.TestCase
TestWireAgreement.settings = steps(40, runs=300)
