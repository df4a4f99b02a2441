"""The client's half of KIP-227: Sidefetch's copy of the state of a session in a broker.

The copy changes only when a broker acknowledges a fetch. After a fetch that was lost, cancelled or refused, the
next fetch names every partition again and replaces a session that may be left.

The rules are those of Kafka's ``FetchSessionHandler``, with two differences. The session id of an incremental
response must equal that of the request. And a plan is computed from the changes since the last plan, so that its
cost follows the changes; ``FetchSessionHandler`` walks all partitions for each request, and copies the last one.
"""

import enum
from collections.abc import Collection, Mapping
from typing import Final, assert_never

import attrs

from proxy.errors import ErrorCode
from proxy.session.epochs import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, SessionId, is_full, next_epoch
from proxy.wire.fetch import FetchPartition, PartitionKey

__all__ = [
    "AcceptedResponse",
    "FetchPlan",
    "FullFetchPlan",
    "IncrementalFetchPlan",
    "RejectedResponse",
    "RejectionReason",
    "SessionResponseFields",
    "UpstreamSession",
]


@attrs.frozen
class FullFetchPlan:
    """The state in which the next fetch names every partition."""

    session_id: SessionId = NO_SESSION
    """The session that the fetch closes; 0 for none."""


@attrs.frozen
class IncrementalFetchPlan:
    """The state in which the next fetch names only the changed partitions of the session."""

    session_id: SessionId
    """Never 0."""
    epoch: int
    """The epoch of the next request, 1..2**31 - 1."""


@attrs.frozen
class FetchPlan:
    """A fetch that is planned and not acknowledged yet."""

    session_id: SessionId
    epoch: int
    asks: Mapping[PartitionKey, FetchPartition]
    """The partitions that it names, in order."""
    forgotten: tuple[PartitionKey, ...]
    """The partitions that it removes from the session."""
    size: int
    """The number of partitions that it covers, named or kept by the broker."""

    @property
    def is_full(self) -> bool:
        return is_full(self.epoch)


@attrs.frozen
class SessionResponseFields:
    """The fields of a response that concern its session."""

    error: int
    session_id: SessionId
    throttle_ms: int
    keys: Collection[PartitionKey]
    """The partitions of the response."""


class RejectionReason(enum.Enum):
    """The reason why a response is rejected."""

    EVICTED = "the broker does not know the session"
    WRONG_EPOCH = "the broker expected another epoch"
    MIXED_IDS = "the session was made with topic ids, the request without, or the other way round"
    ERROR = "the broker refused the request"
    DISAGREED = "the answer's partitions or session are not those asked for"
    OUTDATED = "the session was given up while the fetch was under way"


@attrs.frozen
class AcceptedResponse:
    """A valid response; that of a throttled full fetch has no partitions."""

    session_id: SessionId
    """The session of the next fetch; 0 for none."""


@attrs.frozen
class RejectedResponse:
    """An invalid response, which must not be used; the next fetch replaces the session."""

    why: RejectionReason
    error: int


class UpstreamSession:
    """A session with a broker; at most one fetch is in flight.

    Use: ``put`` and ``take_out`` partitions that change, ``plan`` the next fetch, then call ``receive`` with its
         response, or ``lost`` if there is none.
    """

    __slots__ = ("_before", "asks", "state")

    def __init__(self) -> None:
        self.state: FullFetchPlan | IncrementalFetchPlan = FullFetchPlan()
        self.asks: Final[dict[PartitionKey, FetchPartition]] = {}
        """The partitions of the next fetch, in the order of ``put``; read-only for others."""
        self._before: dict[PartitionKey, FetchPartition | None] = {}
        """By partition changed since the last plan, its value in that plan; None if the plan did not have it.

        A plan is either acknowledged as a whole or ends the session, so nothing else of it is kept.
        """

    def put(self, key: PartitionKey, ask: FetchPartition) -> None:
        """Add a partition to the next fetch, or change it."""
        self._before.setdefault(key, self.asks.get(key))
        self.asks[key] = ask

    def take_out(self, key: PartitionKey) -> None:
        """Remove a partition from the next fetch."""
        self._before.setdefault(key, self.asks.pop(key))

    def asked(self, key: PartitionKey) -> FetchPartition | None:
        """Return the partition as the last plan has it, named or kept by the broker; None if it has none."""
        return self._before[key] if key in self._before else self.asks.get(key)

    @property
    def size(self) -> int:
        """The number of partitions that the last plan covers. Cost: O(changed since)."""
        since = sum((key in self.asks) - (ask is not None) for key, ask in self._before.items())
        return len(self.asks) - since

    def plan(self, *, keep: bool) -> FetchPlan:
        """Return the next fetch, for all of ``asks``; *keep* requests a session, or continues it.

        Cost: O(asks) for a full fetch, O(changed) for an incremental one.
        """
        before, self._before = self._before, {}
        match self.state:
            case IncrementalFetchPlan(session_id, epoch) if keep:
                changed = [key for key, ask in before.items() if self.asks.get(key) != ask]
                named = [key for key in changed if key in self.asks]
                # New partitions come before moved ones, each in the order in which they were changed.
                asks = {key: self.asks[key] for key in sorted(named, key=lambda key: before[key] is not None)}
                forgotten = tuple(key for key in changed if key not in self.asks)
                return FetchPlan(session_id, epoch, asks, forgotten, len(self.asks))
            case FullFetchPlan(session_id) | IncrementalFetchPlan(session_id):
                epoch = INITIAL_EPOCH if keep else FINAL_EPOCH
                return FetchPlan(session_id, epoch, dict(self.asks), (), len(self.asks))
            case never:
                assert_never(never)

    def receive(self, plan: FetchPlan, reply: SessionResponseFields) -> AcceptedResponse | RejectedResponse:
        """Check the response to *plan*, and update the session."""
        if isinstance(self.state, FullFetchPlan) and not plan.is_full:
            # The session was given up after this plan.
            return RejectedResponse(RejectionReason.OUTDATED, reply.error)
        refusal = self._refusal(plan, reply)
        if refusal is not None:
            # An evicted session is gone. Any other is closed by the next fetch, since both sides disagree about it.
            gone = refusal is RejectionReason.EVICTED or plan.epoch == FINAL_EPOCH
            self._start_over(NO_SESSION if gone else self._known_id(plan, reply))
            return RejectedResponse(refusal, reply.error)
        held_back = plan.is_full and not reply.keys and reply.throttle_ms > 0
        if held_back or reply.session_id == NO_SESSION or plan.epoch == FINAL_EPOCH:
            self._start_over(NO_SESSION)
        elif plan.is_full:
            self.state = IncrementalFetchPlan(reply.session_id, next_epoch(INITIAL_EPOCH))
        else:
            self.state = IncrementalFetchPlan(reply.session_id, next_epoch(plan.epoch))
        return AcceptedResponse(self.session_id)

    def lost(self, plan: FetchPlan) -> None:
        """Replace the session, because *plan* got no response and the broker may or may not have applied it."""
        self._start_over(plan.session_id)

    def restart(self) -> None:
        """Name every partition in the next fetch, and replace the session."""
        self._start_over(self.state.session_id)

    def farewell(self) -> FetchPlan | None:
        """Return the fetch that closes the session at the broker, once; None if there is no session."""
        session_id = self.state.session_id
        self._start_over(NO_SESSION)
        return FetchPlan(session_id, FINAL_EPOCH, {}, (), 0) if session_id != NO_SESSION else None

    @property
    def session_id(self) -> SessionId:
        """The session that the next fetch continues; 0 if it names every partition."""
        return self.state.session_id if isinstance(self.state, IncrementalFetchPlan) else NO_SESSION

    def _start_over(self, closing: SessionId) -> None:
        self.state = FullFetchPlan(closing)

    def _known_id(self, plan: FetchPlan, reply: SessionResponseFields) -> SessionId:
        return reply.session_id if plan.is_full and reply.session_id != NO_SESSION else plan.session_id

    def _refusal(self, plan: FetchPlan, reply: SessionResponseFields) -> RejectionReason | None:
        match reply.error:
            case ErrorCode.none:
                pass
            case ErrorCode.fetch_session_id_not_found:
                return RejectionReason.EVICTED
            case ErrorCode.invalid_fetch_session_epoch:
                return RejectionReason.WRONG_EPOCH
            case ErrorCode.fetch_session_topic_id_error:
                return RejectionReason.MIXED_IDS
            case _:
                return RejectionReason.ERROR
        if plan.is_full:
            whole = plan.asks.keys() == set(reply.keys)
            throttled = not reply.keys and reply.throttle_ms > 0
            return None if whole or throttled else RejectionReason.DISAGREED
        if reply.session_id not in (NO_SESSION, plan.session_id):
            return RejectionReason.DISAGREED
        known = all(self.asked(key) is not None for key in reply.keys)
        return None if known else RejectionReason.DISAGREED
