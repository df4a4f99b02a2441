"""The memory of a client's last fetch changes none of its responses."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from proxy.cluster.topology import BrokerId, Leader, TopicInfo, Topology
from proxy.errors import ErrorCode
from proxy.fetch.client_sessions import ClientSessions
from proxy.fetch.fetch_config import FetchConfig
from proxy.fetch_rules import FetchRules
from proxy.relay.commands import ClientFrame, Command, LinkFrame, LinkOpened, OpenLink, Reply, Send, Tick
from proxy.wire.apis import VersionRange
from proxy.wire.fetch import (
    FETCH,
    FetchOptions,
    FetchPartition,
    PartitionKey,
    PartitionReply,
    Topic,
    TopicId,
    read_request,
    request_layout,
    response_layout,
    write_request,
)
from proxy.wire.headers import RequestHeader, read_request_header
from tests.pieces import joined
from tests.relay.solo import Solo
from tests.strategies import examples

BROKERS_FETCH = 6
"""Without sessions: it is asked for everything each time."""
TOPICS = ("a", "b", "c")
PARTITIONS = range(3)
Offsets = Mapping[PartitionKey, int]


class Forgetful:
    """A decoder that decodes each request as if it were the first."""

    read = staticmethod(read_request)


class Conversation:
    """A client, its relay, and a broker that answers all that it is asked at once."""

    def __init__(self, *, forgets: bool) -> None:
        self.now_s = 0.0
        self.watermarks: dict[PartitionKey, int] = {}
        reading = FetchConfig(0.0, 8 << 20, 5, sessions=ClientSessions(0, count(1).__next__))
        self.relay = Solo(BrokerId(1), lambda *_: None, reading)
        if forgets:
            self.relay.relay._repeats = Forgetful()  # type: ignore[assignment]

    def answered(self, frame: bytes, known: Topology) -> bytes:
        pending = self.relay.handle(ClientFrame(memoryview(frame)[4:], known, FetchRules()), self.now_s)
        while True:
            for command in pending:
                if isinstance(command, Reply):
                    return joined(command.pieces)
            pending = [done for command in pending for done in self._done(command)]
            if not pending:
                assert self.relay.deadline_s is not None
                self.now_s = self.relay.deadline_s
                pending = self.relay.handle(Tick(), self.now_s)

    def _done(self, command: Command) -> Iterator[Command]:
        match command:
            case OpenLink(link):
                ranges = {FETCH: VersionRange(0, BROKERS_FETCH)}
                yield from self.relay.handle(LinkOpened(link, ranges), self.now_s)
            case Send(link, pieces):
                answer = memoryview(self._brokers_answer(memoryview(joined(pieces))[4:]))
                yield from self.relay.handle(LinkFrame(link, answer), self.now_s)

    def _brokers_answer(self, frame: memoryview) -> bytes:
        header, cursor = read_request_header(frame)
        asked, layout = read_request(header, cursor), response_layout(BROKERS_FETCH)
        body = [layout.header(header.correlation_id, 0, 0, len(asked.sections))]
        for section in asked.sections:
            entries = list(request_layout(BROKERS_FETCH).entry.iter_unpack(section.entries))
            body.append(layout.topic(section.topic, len(entries)))
            for partition, offset, *_ in entries:
                high = self.watermarks.get(PartitionKey(section.topic, partition), 2)
                error = ErrorCode.offset_out_of_range if offset > high else ErrorCode.none
                body += layout.partition(PartitionReply(partition, error, high, high, 0), 0)
        return b"".join(body)


def topology(leaders: Mapping[PartitionKey, int]) -> Topology:
    topics: dict[Topic, TopicInfo] = {}
    for number, name in enumerate(TOPICS, start=1):
        led = {p: Leader(BrokerId(leaders.get(PartitionKey(name, p), 1)), 5) for p in PARTITIONS}
        topic_id = TopicId(bytes(15) + bytes([number]))
        topics[name] = topics[topic_id] = TopicInfo(name, topic_id, 0, led)
    return Topology("cluster", {}, topics)


_KEYS = st.builds(PartitionKey, st.sampled_from(TOPICS), st.sampled_from(PARTITIONS))
_ASKED = st.dictionaries(_KEYS, st.integers(0, 3), min_size=1)
_VERSIONS = st.sampled_from([3, 4, 6, 11])


@examples(60)
@given(data=st.data())
def test_remembered_last_fetch_changes_no_response(data: st.DataObject) -> None:
    conversations: Sequence[Conversation] = [Conversation(forgets=False), Conversation(forgets=True)]
    known, asked, version = topology({}), data.draw(_ASKED), data.draw(_VERSIONS)
    for number in range(data.draw(st.integers(2, 8))):
        match data.draw(st.sampled_from(["repeat", "repeat", "move", "other", "version", "leaders", "watermarks"])):
            case "move":
                asked = {key: data.draw(st.integers(0, 3)) for key in asked}
            case "other":
                asked = data.draw(_ASKED)
            case "version":
                version = data.draw(_VERSIONS)
            case "leaders":
                known = topology(data.draw(st.dictionaries(_KEYS, st.sampled_from([1, 2]))))
            case "watermarks":
                reported = data.draw(st.dictionaries(_KEYS, st.integers(0, 9)))
                for each in conversations:
                    each.watermarks |= reported
        asks = {key: FetchPartition(offset, 100) for key, offset in asked.items()}
        header = RequestHeader(FETCH, version, number, "client")
        frame = write_request(header, FetchOptions(500, 1), 0, -1, asks, ())
        remembered, forgotten = (each.answered(frame, known) for each in conversations)
        assert remembered == forgotten
