"""Both halves of a session against each other, as they are without bytes between them: see ``accidents``."""

from itertools import count

import attrs

from proxy.session import downstream
from proxy.session.downstream import FetchContext, FetchSessionCache, PlainPartitionState, SessionRequest
from proxy.session.epochs import INITIAL_EPOCH, NO_SESSION, SessionId
from proxy.session.upstream import FetchPlan, SessionResponseFields
from proxy.wire.fetch import FetchPartition, PartitionKey
from tests.session.accidents import SLOTS, Accidents, Log
from tests.strategies import steps


@attrs.frozen
class Seen:
    """A request at the broker, and its meaning when it arrived."""

    context: FetchContext
    asks: dict[PartitionKey, downstream.SessionPartition]


@attrs.frozen
class SentResponse:
    answer: downstream.SessionResponse
    states: dict[PartitionKey, PlainPartitionState]
    """The states of all partitions that were read."""
    throttle_ms: int = 0


class SessionAgreement(Accidents[downstream._Session, SessionRequest, Seen, SentResponse]):
    def __init__(self) -> None:
        ids = count(1)
        self.cache = FetchSessionCache(SLOTS, lambda: next(ids))
        super().__init__(self.cache._slots)
        self.reported: dict[PartitionKey, PlainPartitionState] = {}
        self.by_id = False

    def name_otherwise(self) -> None:
        self.by_id = not self.by_id

    def request(self, plan: FetchPlan) -> SessionRequest:
        asks: dict[downstream.Key, downstream.SessionPartition] = {
            heard(key): as_heard(ask) for key, ask in plan.requested.items()
        }
        forgotten: list[downstream.Key] = [heard(key) for key in plan.forgotten]
        return SessionRequest(plan.session_id, plan.epoch, asks, forgotten, self.by_id)

    def see(self, request: SessionRequest) -> Seen:
        context = self.cache.open(request, self.now_s)
        return Seen(context, {named(key): ask for key, ask in context.partitions()})

    def is_within_session(self, seen: Seen) -> bool:
        return isinstance(seen.context, downstream.IncrementalFetchContext)

    def answer(self, seen: Seen) -> SentResponse:
        states = {key: state_of(self.logs[key], ask.offset) for key, ask in seen.asks.items()}
        results: dict[downstream.Key, PlainPartitionState] = {heard(key): state for key, state in states.items()}
        return SentResponse(seen.context.answer(results, self.now_s), states)

    def throttled(self, seen: Seen) -> SentResponse:
        return SentResponse(seen.context.answer_throttled(), {}, throttle_ms=100)

    def reply(self, answer: SentResponse) -> SessionResponseFields:
        reported = answer.answer
        keys = [] if answer.throttle_ms else list(map(named, reported.keys))
        return SessionResponseFields(reported.error, reported.session_id, answer.throttle_ms, keys)

    def check(self, seen: Seen, answer: SentResponse) -> None:
        assert seen.asks == {key: as_heard(ask) for key, ask in self.wanted.items()}
        keys = list(map(named, answer.answer.keys))
        self.reported |= {key: answer.states[key] for key in keys}
        for key, ask in dict(self.wanted).items():
            reported, true = self.reported[key], answer.states[key]
            assert (reported.high_watermark, reported.log_start, reported.error) == (
                true.high_watermark,
                true.log_start,
                true.error,
            )
            if true.has_records:
                assert key in keys
                self.ours.put(key, ask._replace(offset=self.logs[key].end))

    def serve_another(self, size: int) -> SessionId:
        asks: dict[downstream.Key, downstream.SessionPartition] = {
            ("other", n): downstream.SessionPartition(0, 1) for n in range(size)
        }
        context = self.cache.open(SessionRequest(NO_SESSION, INITIAL_EPOCH, asks), self.now_s)
        return context.answer({key: PlainPartitionState(0) for key in asks}, self.now_s).session_id

    def evicted(self, session_id: SessionId) -> bool:
        return self.cache.evict(session_id)

    def held(self, session: downstream._Session) -> dict[PartitionKey, FetchPartition]:
        return {named(key): as_asked(entry.wanted) for key, entry in session.entries.items()}


def state_of(log: Log, offset: int) -> PlainPartitionState:
    if log.error:
        return PlainPartitionState(-1, -1, error=log.error)
    return PlainPartitionState(log.end, log.start, has_records=offset < log.end)


def named(key: downstream.Key) -> PartitionKey:
    return PartitionKey(str(key[0]), key[1])


def heard(key: PartitionKey) -> downstream.Key:
    return str(key.topic), key.partition


def as_heard(ask: FetchPartition) -> downstream.SessionPartition:
    return downstream.SessionPartition(ask.offset, ask.max_bytes, ask.epoch, ask.last_fetched_epoch)


def as_asked(ask: downstream.SessionPartition) -> FetchPartition:
    asked = FetchPartition(ask.offset, ask.max_bytes, ask.leader_epoch, ask.last_fetched_epoch)
    assert as_heard(asked) == ask
    return asked


TestSessionAgreement = SessionAgreement.TestCase
TestSessionAgreement.settings = steps(40, runs=300)
