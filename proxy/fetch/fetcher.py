"""One loop of upstream fetches: a connection to a broker, with at most one fetch in flight, and its session."""

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final

import attrs

from proxy.errors import BrokerProtocolError
from proxy.events import FetchRecord, RouteKind, SessionEvent, SessionRecord
from proxy.fetch.commands import CloseSession, EmitRecord, FetcherId, FetcherKind, SendFetch
from proxy.fetch.sent import Sent, name_of
from proxy.session.epochs import INITIAL_EPOCH, NO_SESSION, SessionId
from proxy.session.upstream import (
    AcceptedResponse,
    FetchPlan,
    RejectedResponse,
    RejectionReason,
    SessionResponseFields,
    UpstreamSession,
)
from proxy.wire.apis import ApiRanges
from proxy.wire.fetch import (
    FETCH,
    IDS_VERSION,
    MAX_VERSION,
    UNKNOWN,
    FetchOptions,
    FetchPartition,
    FetchResponse,
    PartitionKey,
    Topic,
    write_request,
)
from proxy.wire.headers import RequestHeader

if TYPE_CHECKING:
    from proxy.fetch.positions import Positions
    from proxy.fetch.shared_log import SharedLog

__all__ = ["ENDING_S", "INSTANT_S", "FetchResult", "FetchWait", "Fetcher"]

_SESSIONS_VERSION: Final = 7
_LEADERS_VERSION: Final = 4
_FOLLOWERS_VERSION: Final = 11
"""The oldest Fetch version with which followers answer consumers (KIP-392)."""
_LAST_SLOW_REDIRECT: Final = 13
"""The newest Fetch version of the Kafka versions 3.1 to 3.4, in which KAFKA-13767 is not fixed."""

_BACK_OFF_S: Final = 10.0
"""The time without a session after a broker refused or evicted one: its slots are scarce."""
_NAMED_SESSION_LIMIT: Final = 1000
"""The most partitions of a session by name: Kafka's hash of names makes larger ones stall a broker."""
MANY: Final = 100
"""The number of partitions from which naming each in every fetch costs more than a session loses.

Below it, a reader that is behind gets no session: the response that creates one does not rotate the partitions, so
that one would be read twice in a row.
"""
_GRACE_S: Final = 2.0
"""The time that a broker may take beyond the max wait of a request."""
_JOIN_AT_ONCE: Final = 1000
"""The number of logs that may join between two requests."""
INSTANT_S: Final = 1e-6
"""Times that differ by less than this count as equal."""
ENDING_S: Final = 0.5
"""The time after the max wait of a request within which its response is awaited."""
PARKED_S: Final = 0.05
"""The time after which an unanswered long poll counts as parked: with records, its broker would have answered."""


@attrs.frozen
class FetchWait:
    """The max wait and min bytes of an upstream fetch, and the time-out of its response."""

    wait_s: float
    """The max wait of the request."""
    min_bytes: int = 1
    timeout_s: float = 0.0
    """The time without a response after which the connection is closed; at least the max wait and 2 s."""

    @property
    def is_parked(self) -> bool:
        """Whether max wait is above 0 and min bytes at most 1, so that a missing response means "nothing new"."""
        return self.wait_s > 0 and self.min_bytes <= 1


@attrs.frozen
class _InFlight:
    """The upstream fetch that waits for its response."""

    sent: Sent
    wait: FetchWait
    max_bytes: int
    """The limit of the whole response."""
    late_s: float
    """The time by which the response must have begun."""
    number: int
    """The number of the last client fetch that began before it was sent."""
    begun_number: int | None = None
    """The number of the last client fetch that began before its response; None until the response begins."""


@attrs.frozen
class FetchResult:
    """The response to an upstream fetch, and whether its session accepts it."""

    response: FetchResponse
    outcome: AcceptedResponse | RejectedResponse
    """Whether the response may be used; a rejected one has a top-level error, or contradicts the session."""
    requested: Callable[[PartitionKey], FetchPartition | None]
    """Returns the requested offset of a partition, also of one that only the session has; None if it was not
    requested. It is valid until the next request is sent."""
    sent_s: float
    """The time of the request."""
    number: int
    """The number of the last client fetch that it confirms logs for."""
    _record: Callable[[int], FetchRecord]
    _session_records: tuple[EmitRecord, ...]

    def records(self, kept_bytes: int = 0) -> Iterator[EmitRecord]:
        """Yield the telemetry of the fetch and of its session.

        *kept_bytes*: the size of its records that went to logs, or unchanged to clients; the rest were dropped.
        """
        yield EmitRecord(self._record(kept_bytes))
        yield from self._session_records


@attrs.define(eq=False)
class Fetcher:
    """A loop of upstream fetches to one broker, with at most one in flight, and its fetch session.

    Each request has all logs of the fetcher, at their ends. Logs join only while no request is in flight, and may
    leave at any time. After a reconnect the session is kept, unless the connection was lost with a fetch in flight,
    or the broker now names topics in another way (by id or by name).
    """

    id: FetcherId
    _route: RouteKind
    """The reason why the broker is read: it is the leader, or a closer replica."""
    _jitter: float
    """0..1; spreads the next requests for sessions of fetchers that were refused one."""
    _sessionless_until_s: float = 0.0
    _session: UpstreamSession = attrs.field(factory=UpstreamSession)
    _in_flight: _InFlight | None = None
    _correlation_id: int = 0
    _session_made_s: float | None = None
    _sent_s: float = float("-inf")
    _opens_by_s: float | None = None
    version: int = 0
    """The Fetch version of the connection, or of the last one; 0 before the first."""
    is_open: bool = False
    """Whether there is a connection."""
    is_opening: bool = False
    """Whether a connection is being opened."""
    is_behind: bool | None = None
    """Whether the last response was about as large as its limits allow; None before the first."""
    muted_until_s: float = 0.0
    """The time until which the broker reads no request, since it throttles the connection (KIP-219)."""
    paced_until_s: float = 0.0
    """The time before which a request is sent only for a client fetch that is due."""
    held_until_s: float = 0.0
    """The time before which no request is sent, as all waiting clients want more bytes than there are."""
    confirmed: int = 0
    """The number of the last client fetch for which all its logs, except for ``cut``, are confirmed.

    A log is confirmed if a response that counts for the client fetch had records for it, or showed that there are
    none beyond its end.
    """
    rejections: int = 0
    """The number of rejected responses and lost connections in a row."""
    is_wanted: bool = False
    """Whether to send a request though no client waits, so that it is in flight when the next client fetch
    comes."""
    is_changed: bool = False
    """Whether the next request has other offsets than the last one."""
    joined: int = 0
    """The number of logs that have joined since the last request."""
    is_building: bool = False
    """Whether more logs wait to join after the request in flight, which had room for no more new ones."""
    logs: "dict[PartitionKey, SharedLog]" = attrs.field(factory=dict)
    """The logs that it fills, by partition."""
    moved: "dict[SharedLog, None]" = attrs.field(factory=dict)
    """The logs whose ends are not those of the session's last request."""
    without_offsets: "dict[SharedLog, None]" = attrs.field(factory=dict)
    """The logs of partitions whose high watermark is not known, or is below the offset of the log."""
    probes: "dict[SharedLog, None]" = attrs.field(factory=dict)
    """The logs for clients with a max wait below 10 ms."""
    cut: "dict[SharedLog, None]" = attrs.field(factory=dict)
    """The logs for whose records the last response had no room."""
    checked: "dict[SharedLog, None]" = attrs.field(factory=dict)
    """The logs whose requests have a last fetched epoch, to detect truncation."""
    unused_offsets: dict[PartitionKey, None] = attrs.field(factory=dict)
    """The partitions of the session whose last reported offsets were not used, since their logs had left."""
    waiting: "dict[Positions, None]" = attrs.field(factory=dict)
    """The clients with an open fetch that read its logs."""

    # ------------------------------------------------------------------------------------------- its state

    @property
    def is_full(self) -> bool:
        """Whether no more logs can join before the next request.

        A request with many new partitions takes long to encode, and its response to decode.
        """
        return self.joined >= _JOIN_AT_ONCE

    @property
    def is_follower(self) -> bool:
        """Whether the broker is a closer replica that is read in place of the one of the client's listener.

        It is False for a follower that a client chose itself: Sidefetch treats that as the leader.
        """
        return self._route in ("preferred", "selected")

    @property
    def has_session(self) -> bool:
        """Whether there is a fetch session with the broker; the next request continues it, or is a full one and
        ends it."""
        return self._session.session_id != NO_SESSION

    @property
    def is_in_flight(self) -> bool:
        """Whether a request waits for its response; until it comes, no log can join."""
        return self._in_flight is not None

    @property
    def is_answering(self) -> bool:
        """Whether a large response has begun to arrive."""
        return self._in_flight is not None and self._in_flight.begun_number is not None

    @property
    def is_parked(self) -> bool:
        """Whether a long poll with min bytes 1 is in flight, and no large response has begun.

        A long poll has a max wait above 0. How long it has waited does not matter here; see ``is_sure``.
        """
        return self._in_flight is not None and self._in_flight.wait.is_parked and not self.is_answering

    @property
    def by_id(self) -> bool:
        """Whether its requests name topics by id."""
        return self.version >= IDS_VERSION

    @property
    def is_slow_to_redirect(self) -> bool:
        """Whether the broker, by its Fetch version, may name a preferred replica only at the end of the max wait
        (KAFKA-13767)."""
        return self.version <= _LAST_SLOW_REDIRECT

    @property
    def heard_s(self) -> float:
        """The time at which the broker reads the request in flight, after any throttling."""
        return max(self._sent_s, self.muted_until_s)

    @property
    def sent_s(self) -> float:
        """The time of the last request; negative infinity before the first."""
        return self._sent_s

    @property
    def late_s(self) -> float | None:
        """The time by which the response to the request in flight must be complete or, if it is large, have begun.

        Without one, the time by which a follower's connection must be open. None if nothing is late at any time.
        """
        if self._in_flight is None:
            return self._opens_by_s
        return None if self.is_answering else self._in_flight.late_s

    def is_sure(self, number: int, now_s: float, *, is_probe: bool, has_records: bool, is_cut: bool) -> bool:
        """Return whether the broker confirms, for client fetch *number*, that the logs have no new records.

        It does if a response has confirmed it (``confirmed``): usually to a request that was sent after the client
        fetch began, or to a long poll that was waiting then. It also does while a long poll is in flight whose
        response has not begun, if the broker has read it, which it does not while it throttles (``heard_s``), and
        it was sent before the client fetch began or the broker read it at least 50 ms ago.

        Args: is_probe: whether only a response confirms it.
              has_records: whether the client's response has records or errors of other logs; a request that waits
                  for more than one byte then counts as a long poll, but for 0.5 s after its max wait: its response
                  comes then.
              is_cut: whether the client waits for a log in ``cut``: responses then confirm nothing, and a long poll
                  only after 50 ms.
        """
        if self.confirmed >= number and not is_cut:
            return True
        flight = self._in_flight
        if flight is None or is_probe or self.is_answering:
            return False
        is_ending = -INSTANT_S <= now_s - self.ends_s < ENDING_S
        if not (flight.wait.is_parked or (has_records and flight.wait.wait_s > 0 and not is_ending)):
            return False
        return now_s >= self.sure_s(number, is_cut=is_cut)

    @property
    def ends_s(self) -> float:
        """The time at which the max wait of the request in flight ends; negative infinity without one."""
        return float("-inf") if self._in_flight is None else self.heard_s + self._in_flight.wait.wait_s

    def sure_s(self, number: int, *, is_cut: bool) -> float:
        """Return the time at which a long poll in flight confirms "nothing new" for the client fetch *number*.

        That is when the broker reads it; 50 ms later if *is_cut* (see ``is_sure``), or if the long poll was sent
        after the client fetch began. Call this only while a request is in flight.
        """
        was_sent_for_it = is_cut or (self._in_flight is not None and self._in_flight.number >= number)
        return self.heard_s + (PARKED_S if was_sent_for_it else 0.0)

    def was_sent_before(self, number: int) -> bool:
        """Return whether the request in flight was sent before the client fetch *number* began."""
        return self._in_flight is not None and self._in_flight.number < number

    def waits_longer_than(self, deadline_s: float, min_bytes: int) -> bool:
        """Return whether the request in flight may wait for longer, or for more bytes, than a client fetch."""
        flight = self._in_flight
        if flight is None or self.is_answering or flight.wait.wait_s == 0:
            return False
        return self.ends_s > deadline_s or flight.wait.min_bytes > max(min_bytes, 1)

    def describe(self, now_s: float) -> str:
        """Return a description of the fetcher's state and its number of partitions, for log messages."""
        state = "opening" if self.is_opening else "idle" if self.is_open else "closed"
        if self._in_flight is not None:
            state = f"{'parked' if self.is_parked else 'in flight'} for {now_s - self._sent_s:.3f} s"
        return f"{name_of(self.id)}: {state}, {len(self.logs)} partitions"

    # ------------------------------------------------------------------------------------------- its logs

    def join(self, log: "SharedLog", offset: int) -> None:
        """Add *log* to the next requests, from *offset* on. Call this only while no request is in flight.

        The next request is a full one if the broker's last offsets of the partition were not used.
        """
        assert self._in_flight is None
        if log.key.partition in self.unused_offsets:
            self.restart()
        self.joined += 1
        self.confirmed = min(self.confirmed, log.confirmed) if self.logs else log.confirmed
        self.logs[log.key.partition] = log
        self._put(log, offset)
        if log.key.is_probe:
            self.probes[log] = None
        if log.key.last_fetched_epoch != UNKNOWN:
            self.checked[log] = None

    def move(self, log: "SharedLog", offset: int) -> None:
        """Request *log*, which has joined, from *offset* on, and put it last in the request (KAFKA-12330).

        Call this only while no request is in flight.
        """
        self._session.remove(log.key.partition)
        self._put(log, offset)

    def _put(self, log: "SharedLog", offset: int) -> None:
        key, self.is_changed = log.key, True
        self._session.put(key.partition, FetchPartition(offset, log.max_bytes, key.epoch, key.last_fetched_epoch))

    def can_leave(self, log: "SharedLog", now_s: float) -> bool:
        """Return whether little is lost if *log* leaves now, so that the response in flight is not applied to it.

        The broker must have no records for it so far, or have sent all that it had before this request.
        """
        if not self.is_in_flight or (self.is_parked and now_s >= self.heard_s + PARKED_S):
            return True
        return self.confirmed > 0 and not (self.is_answering or log.is_cut)

    def leave(self, log: "SharedLog") -> None:
        """Remove *log* from the next requests; the response to a request in flight is not applied to it."""
        log.confirmed = 0 if log in self.cut else self.confirmed
        del self.logs[log.key.partition]
        self._session.remove(log.key.partition)
        for each in (self.moved, self.without_offsets, self.probes, self.cut, self.checked):
            each.pop(log, None)

    def restart(self) -> None:
        """Make the next request a full fetch that replaces the session: the broker reports all offsets again.

        No log counts as confirmed until its response.
        """
        self._session.restart()
        self.unused_offsets.clear()
        self.confirmed = 0

    # ------------------------------------------------------------------------------------------- connections

    def opening(self, by_s: float | None) -> None:
        """Record that a connection is being opened.

        *by_s*: the time by which it must be open; None for no limit.
        """
        self.is_opening, self._opens_by_s = True, by_s

    def opened(self, ranges: ApiRanges) -> None:
        """Record that a connection is open; *ranges*: the API versions of the broker.

        The next fetch is a full one if the broker names topics in another way than before (by id or by name).

        Raises: BrokerProtocolError: the broker's newest Fetch version is below v4, or below v11 for a follower.
        """
        served = ranges.get(FETCH)
        version = min(served.last, MAX_VERSION) if served is not None else 0
        oldest = _FOLLOWERS_VERSION if self.is_follower else _LEADERS_VERSION
        if version < oldest:
            node_id = self.id.source.node_id
            raise BrokerProtocolError(f"broker {node_id} serves Fetch up to v{version}, v{oldest} is needed")
        by_id, self.version = self.by_id, version
        if self.by_id != by_id:
            self._session.restart()
        self.is_open, self.is_opening, self._opens_by_s = True, False, None

    def lost(self, now_s: float) -> list[EmitRecord]:
        """Record that the connection was closed or not opened; return the telemetry of a request in flight, if any.

        The fetcher keeps its logs, and also its session if no request was in flight.
        """
        self.is_open, self.is_opening, self._opens_by_s = False, False, None
        self.muted_until_s = 0.0
        self.confirmed = 0
        flight, self._in_flight = self._in_flight, None
        if flight is None:
            return []
        self._session.discard_plan(flight.sent.plan)
        return [EmitRecord(flight.sent.unanswered(now_s))]

    # ------------------------------------------------------------------------------------------- requests

    def creates_session(self, now_s: float) -> bool:
        """Return whether the next request is a full fetch that asks the broker for a session.

        Not for 10 to 20 s after a broker refused or evicted one.
        """
        return not self._session.session_id and self._keeps_session(now_s)

    def _keeps_session(self, now_s: float) -> bool:
        size = len(self.logs)
        is_worth_it = self.is_behind is not None and (self.has_session or not self.is_behind or size >= MANY)
        if self.id.kind is FetcherKind.CATCH_UP or (self.id.kind is FetcherKind.LIVE and size < MANY):
            is_worth_it = False
        return (
            size > 0
            and is_worth_it
            and self.version >= _SESSIONS_VERSION
            and now_s >= self._sessionless_until_s
            and (self.by_id or size <= _NAMED_SESSION_LIMIT)
        )

    def request(
        self, client_id: str | None, options: FetchOptions, wait: FetchWait, number: int, now_s: float
    ) -> SendFetch:
        """Return the command to send the next request, for all logs, which is then in flight.

        Args: client_id: the client id of the request.
              options: the limits and the isolation level; *wait* replaces max wait and min bytes.
              number: the number of the last client fetch that has begun.
        """
        options = attrs.evolve(options, max_wait_ms=ceil(wait.wait_s * 1000 - 0.001), min_bytes=wait.min_bytes)
        plan = self._session.plan(keep=self._keeps_session(now_s))
        command = self._framed(plan, client_id, options)
        heard_s = max(now_s, self.muted_until_s)
        late_s = heard_s + max(wait.wait_s + _GRACE_S, wait.timeout_s)
        sent = self._sent(plan, command.frame, now_s)
        self._in_flight = _InFlight(sent, wait, options.max_bytes, late_s, number)
        self._sent_s = now_s
        self.is_building, self.joined = self.is_full, 0
        self.is_wanted = self.is_changed = False
        self.without_offsets = self.without_offsets or {}
        return command

    def answering(self, number: int) -> None:
        """Record that a large response has begun to arrive: the request is neither late nor parked from now on.

        *number*: the number of the last client fetch for which the response to a long poll counts; 0 if it counts
        only for those that had begun before the request.
        """
        if self._in_flight is not None and self._in_flight.begun_number is None:
            self._in_flight = attrs.evolve(self._in_flight, begun_number=number)

    def received(
        self,
        frame: memoryview,
        number: int,
        now_s: float,
        *,
        topic_name: Callable[[Topic], str],
        client_fetches: int = 1,
    ) -> FetchResult:
        """Decode the broker's response in *frame*, and apply it to the session, but not to the logs.

        No request is in flight afterwards, unless it raises.

        Args: number: the response to a long poll counts for all client fetches up to this number, or up to the
                  number of ``answering`` if that was called; never for fewer than had begun before the request.
              topic_name: returns the name of a topic for telemetry.
              client_fetches: the number of client fetches that the response serves, for telemetry.
        Raises: BrokerProtocolError: *frame* is malformed, or no response to the request in flight. The caller must
                    close the connection and call ``lost``.
        """
        flight = self._in_flight
        if flight is None:
            raise BrokerProtocolError("an answer to nothing")
        response = flight.sent.read(frame)
        self._in_flight = None
        self.muted_until_s = now_s + response.throttle_ms / 1000
        keys = [PartitionKey(topic, each.partition) for topic, replies in response.topics for each in replies]
        fields = SessionResponseFields(response.error, SessionId(response.session_id), response.throttle_ms, keys)
        outcome = self._session.receive(flight.sent.plan, fields)
        if isinstance(outcome, AcceptedResponse):
            self.is_behind = _is_behind(response, flight.max_bytes, self._session.get_planned)
        self._learn_of_slots(flight.sent.plan, response, outcome, now_s)
        if flight.wait.is_parked:
            confirms = max(flight.number, number if flight.begun_number is None else flight.begun_number)
        else:
            # A redirect ends the wait at once (KIP-392): the other logs have not waited for as many bytes.
            confirms = 0 if flight.wait.wait_s and response.redirects else flight.number
        answered = partial(flight.sent.answered, client_fetches=client_fetches)
        record = partial(answered, response, len(frame), now_s, topic_name)
        records = tuple(self._session_records(flight.sent, outcome, now_s))
        return FetchResult(
            response, outcome, self._session.get_planned, flight.sent.sent_s, confirms, record, records
        )

    def close_session(self, now_s: float) -> Iterator[EmitRecord | CloseSession]:
        """Yield the telemetry of a request in flight and of the session's end, and the request that closes it.

        Without a session, only the first is yielded. No other method may be called afterwards.
        """
        size = self._session.size
        yield from self.lost(now_s)
        plan = self._session.close()
        if plan is None:
            return
        yield self._session_record(plan.session_id, "closed", size, "the client has gone")
        frame = self._framed(plan, None, FetchOptions(0, 0)).frame
        yield CloseSession(self.id, frame, self._sent(plan, frame, now_s).closed)

    def _learn_of_slots(
        self, plan: FetchPlan, response: FetchResponse, outcome: AcceptedResponse | RejectedResponse, now_s: float
    ) -> None:
        match outcome:
            case RejectedResponse(why):
                is_crowded = why is RejectionReason.EVICTED
            case AcceptedResponse(session_id):
                has_requested_one = plan.epoch == INITIAL_EPOCH and not response.throttle_ms
                is_crowded = has_requested_one and session_id == NO_SESSION
        if is_crowded:
            self._sessionless_until_s = now_s + _BACK_OFF_S * (1 + self._jitter)

    def _session_records(
        self, sent: Sent, outcome: AcceptedResponse | RejectedResponse, now_s: float
    ) -> Iterator[EmitRecord]:
        plan = sent.plan
        match outcome:
            case AcceptedResponse(session_id) if plan.epoch == INITIAL_EPOCH and session_id == NO_SESSION:
                yield self._session_record(session_id, "refused", plan.size, "the broker has granted none")
            case AcceptedResponse(session_id) if plan.epoch == INITIAL_EPOCH:
                self._session_made_s = now_s
                yield self._session_record(session_id, "created", plan.size)
            case RejectedResponse(why) if plan.session_id != NO_SESSION:
                event: SessionEvent = "evicted" if why is RejectionReason.EVICTED else "reset"
                yield self._session_record(plan.session_id, event, plan.size, why.value)
            case _:
                pass

    def _session_record(self, session_id: int, event: SessionEvent, size: int, reason: str = "") -> EmitRecord:
        made_s, used_s = (self._session_made_s, self._sent_s) if session_id else (None, None)
        node_id, name = self.id.source.node_id, name_of(self.id)
        return EmitRecord(SessionRecord(node_id, session_id, event, size, "upstream", name, reason, made_s, used_s))

    def _sent(self, plan: FetchPlan, frame: bytes, now_s: float) -> Sent:
        return Sent(self.id, self._route, plan, self.version, self._correlation_id, len(frame), now_s)

    def _framed(self, plan: FetchPlan, client_id: str | None, options: FetchOptions) -> SendFetch:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = RequestHeader(FETCH, self.version, self._correlation_id, client_id)
        frame = write_request(header, options, plan.session_id, plan.epoch, plan.requested, plan.forgotten)
        return SendFetch(self.id, frame)


def _is_behind(
    response: FetchResponse, max_bytes: int, requested: Callable[[PartitionKey], FetchPartition | None]
) -> bool:
    """Return whether *response* uses half of a limit or more, so that there are probably more records."""
    total_bytes = 0
    for topic, replies in response.topics:
        for reply in replies:
            wanted = requested(PartitionKey(topic, reply.partition)) if len(reply.records) else None
            if wanted is not None and 2 * len(reply.records) >= wanted.max_bytes:
                return True
            total_bytes += len(reply.records)
    return 2 * total_bytes >= max_bytes
