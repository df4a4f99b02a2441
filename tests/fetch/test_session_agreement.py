"""The broker's half of a fetch session, ``ClientSessions``, against the client's half, with encoded messages.

``tests.session.test_agreement`` does the same with the decoded halves. Here, clients also continue their session on
another connection, whose reader has no state of it, and change the version.
"""

from itertools import count
from typing import Final

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import rule

from proxy.fetch.client_session import ClientSession
from proxy.fetch.client_sessions import ClientSessions, Context, Incremental
from proxy.fetch.exchange import Exchange
from proxy.session.epochs import INITIAL_EPOCH, NO_SESSION, SessionId
from proxy.session.upstream import FetchPlan, SessionResponseFields
from proxy.wire.fetch import FetchPartition, FetchRequest, FetchResponse, PartitionKey, PartitionReply, Topic
from tests.fetch.desk import Connection, asked_by, fetch_of, read, wanted_of
from tests.fetch.requests import topic_id
from tests.session.accidents import SLOTS, Accidents
from tests.strategies import steps

NODE: Final = 1
IDS: Final = {"a": topic_id(1), "b": topic_id(2)}
NAMES: Final = {topic: name for name, topic in IDS.items()}
BY_NAME: Final = (7, 9, 11, 12)
BY_ID: Final = (13, 18)


@attrs.frozen
class Seen:
    """A request, and its meaning when it arrived."""

    context: Context
    asks: dict[PartitionKey, FetchPartition]
    """The partitions by name."""


class WireAgreement(Accidents[ClientSession, FetchRequest, Seen, FetchResponse]):
    def __init__(self) -> None:
        ids = count(1)
        self.sessions = ClientSessions(SLOTS, lambda: next(ids))
        super().__init__(self.sessions._slots)
        self.connection = Connection()
        self.reported: dict[PartitionKey, tuple[int, int, int]] = {}
        """(error, high watermark, log start)"""
        self.version = BY_NAME[0]

    def prepare(self, data: st.DataObject) -> None:
        self.version = data.draw(st.sampled_from((*BY_NAME, *BY_ID)))

    @rule(version=st.sampled_from(BY_NAME))
    def speak_another_version(self, version: int) -> None:
        """One that names topics in the same way."""
        if self.version in BY_NAME:
            self.version = version
            if version < 9 and self.wanted:
                for key, ask in dict(self.wanted).items():
                    self.ours.put(key, ask._replace(epoch=-1))
                self.ours.restart()

    @rule()
    def reconnect(self) -> None:
        self.connection = Connection()

    def epoch_of(self, number: int) -> int:
        return number % 2 if self.version >= 9 else -1

    def name_otherwise(self) -> None:
        self.version = BY_ID[0] if self.version in BY_NAME else BY_NAME[-1]

    def request(self, plan: FetchPlan) -> FetchRequest:
        asks = {self.sent(key): ask for key, ask in plan.requested.items()}
        return fetch_of(self.version, plan.session_id, plan.epoch, asks, map(self.sent, plan.forgotten))

    def see(self, request: FetchRequest) -> Seen:
        context = self.sessions.open(request, NODE, self.now_s)
        return Seen(context, {named(key): ask for key, ask in wanted_of(context).items()})

    def is_within_session(self, seen: Seen) -> bool:
        return isinstance(seen.context, Incremental)

    def answer(self, seen: Seen) -> FetchResponse:
        if not seen.asks:
            request = seen.context.request
            return read(request.version, Exchange(request, 0.0, context=seen.context).empty())
        by_id = seen.context.request.by_id
        offsets: dict[PartitionKey, tuple[int, int, int]] = {}
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

    def throttled(self, seen: Seen) -> FetchResponse:
        request = seen.context.request
        exchange = Exchange(request, 0.0, context=seen.context, throttle_ms=100)
        return read(request.version, exchange.empty())

    def reply(self, answer: FetchResponse) -> SessionResponseFields:
        session_id = SessionId(answer.session_id)
        return SessionResponseFields(answer.error, session_id, answer.throttle_ms, list(replies_in(answer)))

    def check(self, seen: Seen, answer: FetchResponse) -> None:
        assert seen.asks == self.wanted
        replies = replies_in(answer)
        self.reported |= {
            key: (each.error, each.high_watermark, each.log_start_offset) for key, each in replies.items()
        }
        for key, ask in dict(self.wanted).items():
            log = self.logs[key]
            assert self.reported[key] == ((log.error, -1, -1) if log.error else (0, log.end, log.start))
            if not log.error and ask.offset < log.end:
                assert len(replies[key].records) == log.end - ask.offset
                self.ours.put(key, ask._replace(offset=log.end))

    def serve_another(self, size: int) -> SessionId:
        asks = {PartitionKey("other", number): FetchPartition(0, 1) for number in range(size)}
        context = self.sessions.open(fetch_of(12, NO_SESSION, INITIAL_EPOCH, asks), NODE, self.now_s)
        return SessionId(Connection().answer(context, {}, ()).session_id)

    def evicted(self, session_id: SessionId) -> bool:
        return self.sessions.close(session_id, NODE)

    def held(self, session: ClientSession) -> dict[PartitionKey, FetchPartition]:
        whole = attrs.evolve(fetch_of(session._layout.version, 0, 0, {}), sections=session.sections)
        return {named(key): ask for key, ask in asked_by(whole).items()}

    def sent(self, key: PartitionKey) -> PartitionKey:
        return _sent(key, by_id=self.version in BY_ID)


def _sent(key: PartitionKey, *, by_id: bool) -> PartitionKey:
    return PartitionKey(IDS[str(key.topic)], key.partition) if by_id else key


def named(key: PartitionKey) -> PartitionKey:
    return PartitionKey(key.topic if isinstance(key.topic, str) else NAMES[key.topic], key.partition)


def replies_in(answer: FetchResponse) -> dict[PartitionKey, PartitionReply]:
    return {named(PartitionKey(topic, each.partition)): each for topic, parts in answer.topics for each in parts}


TestWireAgreement = WireAgreement.TestCase
TestWireAgreement.settings = steps(40, runs=300)
