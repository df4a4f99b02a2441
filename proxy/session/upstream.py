"""The client's half of KIP-227: what Sidefetch believes of a session that a broker keeps for it.

Only what a broker has acknowledged is believed. A fetch that is lost, cancelled or refused commits nothing: the
next one names every partition again and replaces whatever session may be left.

The rules are those of Kafka's ``FetchSessionHandler``, with two differences. The session's id in an incremental
answer is compared with ours. And a plan is made from what was changed since the last one, so that its cost follows
the changes; ``FetchSessionHandler`` walks all partitions for each request, and has a copy of what it has sent.
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
    """The next fetch names every partition that is wanted."""

    session_id: SessionId = NO_SESSION
    """A session that the fetch closes on its way; 0 for none."""


@attrs.frozen
class IncrementalFetchPlan:
    """The next fetch names only what changed; the broker remembers the rest."""

    session_id: SessionId
    """Never 0."""
    epoch: int
    """The next request's, 1..2**31 - 1."""


@attrs.frozen
class FetchPlan:
    """A fetch decided but not acknowledged."""

    session_id: SessionId
    epoch: int
    asks: Mapping[PartitionKey, FetchPartition]
    """The partitions that it names, in order."""
    forgotten: tuple[PartitionKey, ...]
    """The partitions that it takes out of the session."""
    size: int
    """The partitions that it covers, named or remembered by the broker."""

    @property
    def is_full(self) -> bool:
        return is_full(self.epoch)


@attrs.frozen
class SessionResponseFields:
    """What an answer says of the session."""

    error: int
    session_id: SessionId
    throttle_ms: int
    keys: Collection[PartitionKey]
    """The partitions in the answer."""


class RejectionReason(enum.Enum):
    """Why an answer cannot be used."""

    EVICTED = "the broker does not know the session"
    WRONG_EPOCH = "the broker expected another epoch"
    MIXED_IDS = "the session was made with topic ids, the request without, or the other way round"
    ERROR = "the broker refused the request"
    DISAGREED = "the answer's partitions or session are not those asked for"
    OUTDATED = "the session was given up while the fetch was under way"


@attrs.frozen
class AcceptedResponse:
    """The answer holds; for a throttled full fetch it holds nothing."""

    session_id: SessionId
    """The session that goes on; 0 for none."""


@attrs.frozen
class RejectedResponse:
    """The answer must not be used. The session is already set to heal."""

    why: RejectionReason
    error: int


class UpstreamSession:
    """One session with one broker; at most one fetch in flight.

    Use: ``put`` and ``take_out`` what changes, ``plan`` the next fetch, then tell ``receive`` its answer or
         ``lost`` its loss.
    """

    __slots__ = ("_before", "asks", "state")

    def __init__(self) -> None:
        self.state: FullFetchPlan | IncrementalFetchPlan = FullFetchPlan()
        self.asks: Final[dict[PartitionKey, FetchPartition]] = {}
        """What the next fetch is for, in the order in which it was put in. Not to be written to by others."""
        self._before: dict[PartitionKey, FetchPartition | None] = {}
        """What the last plan had of each that was put in or taken out since; None for nothing.

        A plan either is acknowledged as a whole or ends the session, so this is all that need be kept of it.
        """

    def put(self, key: PartitionKey, ask: FetchPartition) -> None:
        """Ask for this, too, or in another way."""
        self._before.setdefault(key, self.asks.get(key))
        self.asks[key] = ask

    def take_out(self, key: PartitionKey) -> None:
        """Ask for it no more."""
        self._before.setdefault(key, self.asks.pop(key))

    def asked(self, key: PartitionKey) -> FetchPartition | None:
        """What the last plan asks of it, or leaves as the broker remembers it; None for nothing."""
        return self._before[key] if key in self._before else self.asks.get(key)

    @property
    def size(self) -> int:
        """The partitions that the last plan covers. Cost: O(changed since)."""
        since = sum((key in self.asks) - (ask is not None) for key, ask in self._before.items())
        return len(self.asks) - since

    def plan(self, *, keep: bool) -> FetchPlan:
        """The next fetch, for all of ``asks``; *keep* asks for a session or goes on with it.

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
        """Take in the answer to *plan*."""
        if isinstance(self.state, FullFetchPlan) and not plan.is_full:
            return RejectedResponse(
                RejectionReason.OUTDATED, reply.error
            )  # the session is given up, and a new one is due
        refusal = self._refusal(plan, reply)
        if refusal is not None:
            # An evicted session is gone; any other is replaced, since the two sides disagree about it.
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
        """*plan* was not answered: whether the broker has seen it is unknown, and a new session settles it."""
        self._start_over(plan.session_id)

    def restart(self) -> None:
        """Name every partition in the next fetch, and replace the session."""
        self._start_over(self.state.session_id)

    def farewell(self) -> FetchPlan | None:
        """The fetch that closes the session at the broker, to be sent once; None if there is none."""
        session_id = self.state.session_id
        self._start_over(NO_SESSION)
        return FetchPlan(session_id, FINAL_EPOCH, {}, (), 0) if session_id != NO_SESSION else None

    @property
    def session_id(self) -> SessionId:
        """The session that the next fetch goes on with; 0 if it will name everything."""
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
