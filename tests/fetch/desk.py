"""Sessions of clients without a broker: requests and responses as bytes."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

import attrs

from proxy.cluster.topology import BrokerId, Topology
from proxy.fetch.client_sessions import ClientSessions, Context
from proxy.fetch.exchange import Exchange
from proxy.fetch.fetch_state import FetchState, RequestContext
from proxy.fetch.response_template import ResponseTemplate
from proxy.wire.fetch import (
    FETCH,
    FetchOptions,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionKey,
    PartitionReply,
    Topic,
    read_request,
    read_response,
    request_layout,
    response_layout,
    write_request,
)
from proxy.wire.headers import RequestHeader, read_request_header
from tests.pieces import joined

__all__ = ["Connection", "Desk", "asked_by", "fetch_of", "read", "wanted_of"]

_SIZE_BYTES = 4
_OPTIONS = FetchOptions(500, 1)
_NOTHING_KNOWN = Topology()


def fetch_of(
    version: int,
    session_id: int,
    epoch: int,
    asks: Mapping[PartitionKey, FetchPartition],
    forgotten: Iterable[PartitionKey] = (),
    options: FetchOptions = _OPTIONS,
) -> FetchRequest:
    """Return a request as decoded from the client's bytes."""
    header = RequestHeader(FETCH, version, 7, "client")
    frame = write_request(header, options, session_id, epoch, asks, forgotten)
    return read_request(*read_request_header(memoryview(frame)[_SIZE_BYTES:]))


class Connection:
    """The state that a reader keeps for a client; none of it outlives the connection."""

    def __init__(self) -> None:
        self.wanted = FetchState()
        self.template = ResponseTemplate(response_layout(0), committed=False)

    def answer(
        self,
        context: Context,
        offsets: Mapping[PartitionKey, tuple[int, int, int]],
        updates: Sequence[tuple[Topic, PartitionReply]],
    ) -> FetchResponse:
        """Answer with *offsets* as if brokers had just sent them, and without offsets of other partitions."""
        request = context.request
        layout = request_layout(request.version)
        asker = RequestContext(BrokerId(1), layout.by_id, may_read_followers=False)
        change = self.wanted.update(layout, request.sections, _NOTHING_KNOWN, asker)
        reshaped = change.reshaped
        committed = bool(request.options.isolation)
        if not self.template.is_for(request.version, committed=committed):
            self.template = ResponseTemplate(response_layout(request.version), committed=committed)
            reshaped = frozenset(range(len(request.sections)))
        if reshaped or change.is_rearranged:
            self.template.reshape(layout, request.sections, reshaped)
        for (topic, _), rows in self.template._rows.items():
            for partition, index in self.template._places(rows, self.template._partitions):
                known = offsets.get(PartitionKey(topic, partition))
                if known is not None and self.template._offsets(rows, index) != known:
                    self.template.learn(topic, partition, known)
        exchange = Exchange(request, 0.0, context=context)
        for topic, reply in updates:
            exchange.add(topic, reply)
        return read(request.version, exchange.answer(self.template, lambda *_: None))


def read(version: int, pieces: Sequence[object]) -> FetchResponse:
    return read_response(version, joined(pieces)[_SIZE_BYTES:])  # type: ignore[arg-type]  # none is converted


@attrs.define
class Desk:
    """Sessions, and the offsets of partitions from the brokers: 10, 10 and 0 by default."""

    version: int = 12
    slots: int = 10
    node_id: int = 1
    most_bytes: int = 1 << 30
    sessions: ClientSessions = attrs.field(init=False)
    connection: Connection = attrs.field(factory=Connection)
    offsets: dict[PartitionKey, tuple[int, int, int]] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        ids = count(100)
        self.sessions = ClientSessions(self.slots, lambda: next(ids), most_bytes=self.most_bytes)

    def open(
        self,
        session_id: int,
        epoch: int,
        asks: Mapping[PartitionKey, FetchPartition] | None = None,
        forgotten: Iterable[PartitionKey] = (),
        now_s: float = 1.0,
    ) -> Context:
        request = fetch_of(self.version, session_id, epoch, asks or {}, forgotten)
        return self.sessions.open(request, self.node_id, now_s)

    def answer(self, context: Context, *updates: tuple[Topic, PartitionReply]) -> FetchResponse:
        """Made from ``offsets`` and *updates*; an empty one where there is nothing to read."""
        if not context.request.sections:
            return self.empty(context)
        asked = wanted_of(context)
        return self.connection.answer(context, {key: self.offsets.get(key, (10, 10, 0)) for key in asked}, updates)

    def empty(self, context: Context) -> FetchResponse:
        return read(context.request.version, Exchange(context.request, 0.0, context=context).empty())

    def reconnect(self) -> None:
        """The client comes on another connection."""
        self.connection = Connection()


def wanted_of(context: Context) -> dict[PartitionKey, FetchPartition]:
    """Return the partitions that are read for a fetch, in order."""
    return asked_by(context.request)


def asked_by(request: FetchRequest) -> dict[PartitionKey, FetchPartition]:
    """Return the partitions that a fetch names, in order."""
    layout = request_layout(request.version)
    return {
        PartitionKey(section.topic, fields[0]): layout.fetch_partition(fields)
        for section in request.sections
        for fields in layout.entry.iter_unpack(section.entries)
    }
