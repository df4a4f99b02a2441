"""One Fetch request of a client, until its response is encoded."""

import struct
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from proxy.errors import ClientProtocolError
from proxy.fetch.client_sessions import Answer, Context, Sessionless
from proxy.fetch.error_codes import error_for
from proxy.fetch.fetch_recorder import FetchRecorder
from proxy.fetch.response_template import PartitionUpdate, ResponseTemplate, Updates
from proxy.session.epochs import is_full
from proxy.wire.addresses import AddressMap
from proxy.wire.fetch import (
    UNKNOWN,
    Endpoint,
    FetchOptions,
    FetchRequest,
    PartitionReply,
    Topic,
    erroneous,
    request_layout,
    response_layout,
)
from proxy.wire.frames import Piece, Pieces

__all__ = ["EncodedErrors", "Exchange", "FetchParams", "check_request", "refuse_follower"]

_SIZE: Final = struct.Struct(">i")
_INSTANT_MS: Final = 10
"""For clients with a max wait below this, an unanswered fetch does not show that there is nothing new."""
_NO_UPDATES: Final[dict[Topic, list[PartitionUpdate]]] = {}


@attrs.frozen
class FetchParams:
    """The parameters of a client fetch that its upstream fetches depend on."""

    client_id: str | None
    options: FetchOptions
    """Max wait, min bytes, max bytes and isolation level of the client."""
    rack: str
    """The rack of the client; empty if it is not known."""

    @property
    def min_bytes(self) -> int:
        """The bytes of records that end the wait: the client's min bytes, at most its max bytes."""
        return min(self.options.min_bytes, self.options.max_bytes)

    @property
    def is_instant(self) -> bool:
        """Whether max wait is below 10 ms, or min bytes 0, so that the client may expect records just written.

        A parked upstream fetch, which waits at the broker, does not show that there is nothing new for such a
        client: its response may be on the way. Only the response to a fetch sent after the client's shows it (but
        see ``LogCache.drain`` for the shutdown).
        """
        return self.options.max_wait_ms < _INSTANT_MS or self.options.min_bytes <= 0


@attrs.define
class Exchange:
    """The state of one Fetch request of a client, from its start to its response.

    It starts when all earlier requests of the connection are answered.
    """

    request: FetchRequest
    """The request, with all partitions of the client's session."""
    started_s: float
    """The time at which it arrived, and all earlier requests were answered."""
    longest_s: float = float("inf")
    """The longest wait, even if the client's max wait is longer."""
    rack: str = ""
    """The rack of the client; empty if it is not known."""
    updates: dict[Topic, list[PartitionUpdate]] = attrs.field(factory=dict)
    """The partitions of the response with records or errors, by topic as the client names it."""
    endpoints: dict[int, Endpoint] = attrs.field(factory=dict)
    """The leaders' endpoints for the response, by node id: Java's client fails if a response has a node twice."""
    throttle_ms: int = 0
    """The throttle time of the response, which the client has to wait for."""
    paused_ms: int = 0
    """The throttle time that Sidefetch has waited for in the client's place; the response includes it."""
    watchdog_s: float = attrs.field(default=attrs.Factory(lambda self: self.started_s, takes_self=True))
    """The time from which the watchdog counts: after resolving, pausing, converting, or a large response."""
    attempts: int = 0
    """How often a connection to a leader was lost, or a leader's response was unusable."""
    refreshes: int = 0
    """How often metadata was refreshed because the leader refused an id or epoch that the client did not send."""
    context: Context = attrs.field(default=attrs.Factory(lambda self: Sessionless(self.request), takes_self=True))
    """The client's fetch session, which decides the partitions of the response."""
    recorder: FetchRecorder | None = None
    """The collector of its telemetry; None if exchanges are not recorded."""
    params: FetchParams = attrs.field(
        init=False,
        default=attrs.Factory(
            lambda self: FetchParams(self.request.header.client_id, self.request.options, self.rack),
            takes_self=True,
        ),
    )

    @property
    def version(self) -> int:
        """The Fetch version of the request."""
        return self.request.version

    @property
    def deadline_s(self) -> float:
        """The time at which the client's max wait or ``longest_s``, whichever is shorter, is over."""
        return self.started_s + min(self.request.options.max_wait_ms / 1000, self.longest_s)

    @property
    def answered(self) -> set[tuple[Topic, int]]:
        """The partitions, by the client's names, of which the response has records or an error."""
        return {(topic, each.reply.partition) for topic, updates in self.updates.items() for each in updates}

    @property
    def has_records(self) -> bool:
        """Whether the response has records of any partition. Cost: O(updates)."""
        return any(len(each.records) for updates in self.updates.values() for each in updates)

    def add(self, topic: Topic, reply: PartitionReply, records: Piece | None = None) -> None:
        """Add a partition to the response, with *records* instead of those of *reply* if given.

        An error code that clients of this Fetch version cannot handle is replaced (see ``error_for``).
        """
        sent, error = reply, error_for(self.version, reply.error) if reply.error else 0
        if error != reply.error:
            sent = reply._replace(error=error)
        self.updates.setdefault(topic, []).append(
            PartitionUpdate(sent, reply.records if records is None else records)
        )

    def add_errors(self, errors: Mapping[tuple[Topic, int], int]) -> None:
        """Add partitions with *errors*, by topic and partition, to the response, unless they are in it already."""
        answered, updates = self.answered, self.updates
        # Thousands of topics may have the same error of partition 0.
        made: dict[tuple[int, int], PartitionUpdate] = {}
        for (topic, partition), error in errors.items():
            if (topic, partition) in answered:
                continue
            update = made.get((partition, error))
            if update is None:
                update = PartitionUpdate(erroneous(partition, error_for(self.version, error)), b"")
                made[partition, error] = update
            if topic in updates:
                updates[topic].append(update)
            else:
                updates[topic] = [update]

    def has_epoch(self, topic: Topic, partition: int) -> bool:
        """Return whether the request, or the client's session, has a leader epoch for the partition.

        Cost: O(topics of the request + partitions of the topic).
        """
        layout = request_layout(self.version)
        return any(
            fields[0] == partition and layout.fetch_partition(fields).epoch != UNKNOWN
            for section in self.request.sections
            if section.topic == topic
            for fields in layout.entry.iter_unpack(section.entries)
        )

    def answer(
        self, template: ResponseTemplate, map_address: AddressMap, spliced: list[Piece] | None = None
    ) -> Pieces:
        """Return the encoded response: *template* with ``updates`` spliced in; within a session, only the changes.

        Args: template: the partitions of the request with their last offsets.
              map_address: maps a broker's endpoint to Sidefetch's address for it; the result None leaves it out.
              spliced: the result of ``context.splice``; None if that was not called.
        """
        shaped = self.context.answer(template, self.updates, spliced)
        return self._framed(shaped, self.updates, _placed(self.endpoints.values(), map_address))

    def refusal(self, error: int) -> Pieces:
        """Return a response with a top-level *error*, for a fetch that a broker refused as a whole.

        Below v13, each partition of a full fetch has the error, too, as from brokers, or the code that replaces it
        in the client's Fetch version. Below v7, only the partitions have it, since responses have no top-level
        error.
        """
        failed, updates = Answer(error, self.request.session_id, 0, 0, []), _NO_UPDATES
        if self.version < 13 and isinstance(self.context, Sessionless):
            template, updates = self._all_erroneous(error)
            failed = failed._replace(
                topics=template.sections, partitions=template.partitions, pieces=template.answer(updates)
            )
        return self._framed(failed, updates)

    def encode_errors(self, error: int) -> "EncodedErrors":
        """Encode *error* for each partition of the fetch, or of its session, for ``unreadable``.

        Old Fetch versions get the code that replaces it (``error_for``). Any thread may call it.
        """
        template, updates = self._all_erroneous(error)
        return EncodedErrors(template, updates, self.context.splice(template, updates))

    def unreadable(self, encoded: "EncodedErrors") -> Pieces:
        """Return a response with *encoded*, an error for each partition; or with the session's error.

        It has the session's error if a later request has used the session.
        """
        answer = self.context.answer(encoded.template, encoded.updates, encoded.spliced)
        return self._framed(answer, encoded.updates)

    def empty(self) -> Pieces:
        """Return a response without partitions, with the session's error if there is one."""
        return self._framed(self.context.empty(), _NO_UPDATES)

    def _all_erroneous(self, error: int) -> tuple[ResponseTemplate, dict[Topic, list[PartitionUpdate]]]:
        layout, request = response_layout(self.version), request_layout(self.version)
        template = ResponseTemplate(layout, committed=bool(self.request.options.isolation))
        sections = self.request.sections
        template.reshape(request, sections, range(len(sections)))
        code = error_for(self.version, error)
        updates: dict[Topic, list[PartitionUpdate]] = {}
        for section in sections:
            fields = request.entry.iter_unpack(section.entries)
            updates.setdefault(section.topic, []).extend(
                PartitionUpdate(erroneous(each[0], code), b"") for each in fields
            )
        return template, updates

    def _framed(self, answer: Answer, updates: Updates, endpoints: Iterable[Endpoint] = ()) -> Pieces:
        layout = response_layout(self.version)
        throttle_ms = self.throttle_ms + self.paused_ms
        correlation_id = self.request.header.correlation_id
        front = layout.header(correlation_id, throttle_ms, answer.error, answer.topics, answer.session_id)
        end = layout.end(endpoints)
        size = len(front) + sum(map(len, answer.pieces)) + len(end)
        if self.recorder is not None:
            self.recorder.answered(answer, updates, _SIZE.size + size)
        return [_SIZE.pack(size) + front, *answer.pieces, end]


@attrs.frozen
class EncodedErrors:
    """The errors of all partitions of a fetch, and their encoding."""

    template: ResponseTemplate
    updates: Updates
    spliced: list[Piece] | None
    """The result of ``Context.splice``."""


def check_request(request: FetchRequest) -> None:
    """Raise an error for a fetch that a consumer must not send.

    Raises: ClientProtocolError: the fetch is a follower's, or its session epoch is below -1.
    """
    refuse_follower(request.replica_id)
    if not is_full(request.session_epoch) and request.session_epoch < 0:
        raise ClientProtocolError(f"session epoch {request.session_epoch}")


def refuse_follower(replica_id: int) -> None:
    """Raise ClientProtocolError if *replica_id* is a broker's: fetches of followers move the high watermark."""
    if replica_id >= 0:
        raise ClientProtocolError(f"replica id {replica_id}: followers must not fetch through a proxy")


def _placed(endpoints: Iterable[Endpoint], map_address: AddressMap) -> Iterable[Endpoint]:
    for each in endpoints:
        at = map_address(each.node_id, each.host, each.port)
        if at is not None:
            yield each._replace(host=at[0], port=at[1])
