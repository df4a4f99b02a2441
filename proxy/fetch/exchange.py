"""One fetch of a client, from the request to the pieces of its answer."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from proxy.errors import ClientProtocolError
from proxy.fetch.client_sessions import Answer, Context, Sessionless
from proxy.fetch.lowering import error_for
from proxy.fetch.sheet import News, Sheet
from proxy.fetch.telling import Telling
from proxy.session.epochs import is_full
from proxy.wire.addresses import Place
from proxy.wire.fetch import (
    UNKNOWN,
    Endpoint,
    FetchOptions,
    FetchRequest,
    PartitionReply,
    Topic,
    request_layout,
    response_layout,
)
from proxy.wire.frames import Piece, Pieces

__all__ = ["Exchange", "Manner", "check_request", "erroneous", "refuse_follower"]

_SIZE: Final = struct.Struct(">i")
_INSTANT_MS: Final = 10
"""Below this wait, silence of a broker is not taken for its word."""
_NO_NEWS: Final[dict[Topic, list[News]]] = {}


def erroneous(partition: int, error: int) -> PartitionReply:
    """What a broker says of a partition that it could not read."""
    return PartitionReply(partition, error, UNKNOWN, aborted=())


@attrs.frozen
class Manner:
    """How a client asks: what brokers are asked with on its behalf."""

    client_id: str | None
    options: FetchOptions
    rack: str

    @property
    def min_bytes(self) -> int:
        """The least that ends the wait."""
        return min(self.options.min_bytes, self.options.max_bytes)

    @property
    def is_instant(self) -> bool:
        """Whether the client hardly waits, so that it may expect to read what it has just written.

        A broker that is silent to a fetch that waits there may then have a record already, whose notice is on its
        way: only a response to a fetch that was sent after the client's own is the broker's word.
        """
        return self.options.max_wait_ms < _INSTANT_MS


@attrs.define
class Exchange:
    """A client's fetch while it is being answered."""

    request: FetchRequest
    started_s: float
    longest_s: float = float("inf")
    """It waits no longer than this, whatever the client says."""
    rack: str = ""
    """Where the client is; empty if that is not known."""
    news: dict[Topic, list[News]] = attrs.field(factory=dict)
    """What is spliced into the answer, by the client's topics."""
    endpoints: dict[int, Endpoint] = attrs.field(factory=dict)
    """By node id: Java's client fails at an answer that tells of a node twice."""
    throttle_ms: int = 0
    paused_ms: int = 0
    """How long it was throttled that was waited for here; the client is told, and need not wait again."""
    watched_s: float = attrs.field(default=attrs.Factory(lambda self: self.started_s, takes_self=True))
    """The time from which the watchdog counts: after resolving, pausing, converting, or a large response."""
    attempts: int = 0
    """How often brokers were asked in vain."""
    refreshes: int = 0
    """How often metadata was refreshed because the leader refused an id or epoch that the client did not send."""
    context: Context = attrs.field(default=attrs.Factory(lambda self: Sessionless(self.request), takes_self=True))
    """Of the client's session."""
    telling: Telling | None = None
    """What it has come to, where somebody wants to be told."""
    manner: Manner = attrs.field(
        init=False,
        default=attrs.Factory(
            lambda self: Manner(self.request.header.client_id, self.request.options, self.rack), takes_self=True
        ),
    )

    @property
    def version(self) -> int:
        return self.request.version

    @property
    def deadline_s(self) -> float:
        """When the client has waited as long as it wants to."""
        return self.started_s + min(self.request.options.max_wait_ms / 1000, self.longest_s)

    @property
    def answered(self) -> set[tuple[Topic, int]]:
        """The partitions, by the client's names, that the response has news of."""
        return {(topic, each.reply.partition) for topic, news in self.news.items() for each in news}

    @property
    def has_records(self) -> bool:
        """Whether the response has records of any partition. Cost: O(news)."""
        return any(len(each.records) for news in self.news.values() for each in news)

    def add(self, topic: Topic, reply: PartitionReply, records: Piece | None = None) -> None:
        """Tell of a partition, with *records* for the reply's own if they are given."""
        told = reply._replace(error=error_for(self.version, reply.error)) if reply.error else reply
        self.news.setdefault(topic, []).append(News(told, reply.records if records is None else records))

    def has_epoch(self, topic: Topic, partition: int) -> bool:
        """Whether the client told the leader epoch that it knows. Cost: O(the topic's partitions)."""
        layout = request_layout(self.version)
        return any(
            fields[0] == partition and layout.ask(fields).epoch != UNKNOWN
            for section in self.request.sections
            if section.topic == topic
            for fields in layout.entry.iter_unpack(section.entries)
        )

    def answer(self, sheet: Sheet, place: Place) -> Pieces:
        """The sheet with the news spliced in, or what of it the client's session does not have yet."""
        shaped = self.context.answer(sheet, self.news)
        return self._framed(shaped, self.news, _placed(self.endpoints.values(), place))

    def refusal(self, error: int) -> Pieces:
        """An answer that is an error as a whole, as a broker makes it.

        Below v7 there is no place for such an error, and below v13 brokers repeat it for every partition.
        """
        failed, news = Answer(error, self.request.session_id, 0, 0, []), _NO_NEWS
        if self.version < 13 and isinstance(self.context, Sessionless):
            sheet, news = self._all_erroneous(error)
            failed = failed._replace(topics=sheet.sections, partitions=sheet.partitions, pieces=sheet.answer(news))
        return self._framed(failed, news)

    def unreadable(self, error: int) -> Pieces:
        """An answer in which every partition has an error."""
        sheet, news = self._all_erroneous(error)
        return self._framed(self.context.answer(sheet, news), news)

    def empty(self) -> Pieces:
        """An answer without partitions; of a session that is refused, the error."""
        return self._framed(self.context.empty(), _NO_NEWS)

    def _all_erroneous(self, error: int) -> tuple[Sheet, dict[Topic, list[News]]]:
        layout, request = response_layout(self.version), request_layout(self.version)
        sheet = Sheet(layout, committed=bool(self.request.options.isolation))
        sections = self.request.sections
        sheet.reshape(request, sections, range(len(sections)))
        code = error_for(self.version, error)
        news: dict[Topic, list[News]] = {}
        for section in sections:
            fields = request.entry.iter_unpack(section.entries)
            news.setdefault(section.topic, []).extend(News(erroneous(each[0], code), b"") for each in fields)
        return sheet, news

    def _framed(
        self, answer: Answer, news: Mapping[Topic, Sequence[News]], endpoints: Iterable[Endpoint] = ()
    ) -> Pieces:
        layout = response_layout(self.version)
        throttle_ms = self.throttle_ms + self.paused_ms
        correlation_id = self.request.header.correlation_id
        front = layout.header(correlation_id, throttle_ms, answer.error, answer.topics, answer.session_id)
        end = layout.end(endpoints)
        size = len(front) + sum(map(len, answer.pieces)) + len(end)
        if self.telling is not None:
            self.telling.answered(answer, news, _SIZE.size + size)
        return [_SIZE.pack(size) + front, *answer.pieces, end]


def check_request(request: FetchRequest) -> None:
    """Refuse what only a broker may send.

    Raises: ClientProtocolError: the fetch is a follower's, or its session epoch is impossible.
    """
    refuse_follower(request.replica_id)
    if not is_full(request.session_epoch) and request.session_epoch < 0:
        raise ClientProtocolError(f"session epoch {request.session_epoch}")


def refuse_follower(replica_id: int) -> None:
    """Raises ClientProtocolError for the *replica_id* of a broker: it moves the high watermark by fetching."""
    if replica_id >= 0:
        raise ClientProtocolError(f"replica id {replica_id}: followers must not fetch through a proxy")


def _placed(endpoints: Iterable[Endpoint], place: Place) -> Iterable[Endpoint]:
    for each in endpoints:
        at = place(each.node_id, each.host, each.port)
        if at is not None:
            yield each._replace(host=at[0], port=at[1])
