"""The client's half of fetch sessions (KIP-227): Sidefetch's copy of its session in a broker.

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
    """The state of an ``UpstreamSession`` whose next fetch names every partition: it has no session to continue."""

    session_id: SessionId = NO_SESSION
    """The old session that the next fetch closes; 0 for none."""


@attrs.frozen
class IncrementalFetchPlan:
    """The state of an ``UpstreamSession`` whose next fetch continues a session and names only changes."""

    session_id: SessionId
    """Never 0."""
    epoch: int
    """The epoch of the next request, 1..2**31 - 1."""


@attrs.frozen
class FetchPlan:
    """The session's part of a fetch to be sent: session id and epoch, and the partitions to name and to remove."""

    session_id: SessionId
    epoch: int
    requested: Mapping[PartitionKey, FetchPartition]
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
    """The fields of a broker's Fetch response that decide whether the session accepts it."""

    error: int
    session_id: SessionId
    throttle_ms: int
    """The throttle time: with one, a full fetch may have a response without partitions."""
    keys: Collection[PartitionKey]
    """The partitions of the response."""


class RejectionReason(enum.Enum):
    """The reason why ``UpstreamSession.receive`` rejects a broker's Fetch response."""

    EVICTED = "the broker does not know the session"
    WRONG_EPOCH = "the broker expected another epoch"
    MIXED_IDS = "the session was made with topic ids, the request without, or the other way round"
    ERROR = "the broker refused the request"
    DISAGREED = "the answer's partitions or session are not those asked for"
    OUTDATED = "the session was given up while the fetch was under way"


@attrs.frozen
class AcceptedResponse:
    """The result of ``UpstreamSession.receive`` for a valid response, whose partitions may be used.

    The response to a throttled full fetch is valid, too, and has no partitions.
    """

    session_id: SessionId
    """The session that the next fetch continues; 0 if it is a full fetch."""


@attrs.frozen
class RejectedResponse:
    """The result of ``UpstreamSession.receive`` for an invalid response, whose partitions must not be used.

    The next fetch is a full one and replaces the session.
    """

    why: RejectionReason
    error: int
    """The top-level error code of the response; 0 if it has none and is invalid for another reason."""


class UpstreamSession:
    """Sidefetch's side of one fetch session with a broker: the partitions to fetch, and the session id and epoch.

    Use: call ``put`` and ``remove`` for partitions that change, and ``plan`` for the next fetch; then ``receive``
         with its response, or ``discard_plan`` if there is none. At most one fetch is in flight.
    """

    __slots__ = ("_before", "requested", "state")

    def __init__(self) -> None:
        self.state: FullFetchPlan | IncrementalFetchPlan = FullFetchPlan()
        self.requested: Final[dict[PartitionKey, FetchPartition]] = {}
        """The partitions of the next fetch, in the order in which ``put`` added them; read-only for callers."""
        self._before: dict[PartitionKey, FetchPartition | None] = {}
        """The partitions changed since the last plan, with their values in that plan; None if it had them not.

        A plan is either acknowledged as a whole or ends the session, so nothing else of it is kept.
        """

    def put(self, key: PartitionKey, wanted: FetchPartition) -> None:
        """Add a partition to those that the next fetch covers, or replace its fetch parameters by *wanted*."""
        self._before.setdefault(key, self.requested.get(key))
        self.requested[key] = wanted

    def remove(self, key: PartitionKey) -> None:
        """Remove a partition from those that the next fetch covers. Raises: KeyError: it is not one of them."""
        self._before.setdefault(key, self.requested.pop(key))

    def get_planned(self, key: PartitionKey) -> FetchPartition | None:
        """Return the parameters with which the last planned fetch reads the partition; None if it does not.

        The fetch may name the partition, or leave it to the broker, which keeps the session's unchanged partitions.
        """
        return self._before[key] if key in self._before else self.requested.get(key)

    @property
    def size(self) -> int:
        """The number of partitions that the last planned fetch covers, named or kept by the broker.

        Cost: O(partitions changed since that plan).
        """
        since = sum((key in self.requested) - (wanted is not None) for key, wanted in self._before.items())
        return len(self.requested) - since

    def plan(self, *, keep: bool) -> FetchPlan:
        """Return the next fetch, which covers all partitions of ``requested``.

        If *keep*, it continues the session and names only the partitions changed since the last plan; without a
        session, it is a full fetch that requests one. If not *keep*, it is a full fetch that requests none. A full
        fetch closes the old session, if any.

        Cost: O(requested) for a full fetch, O(changed) for an incremental one.
        """
        before, self._before = self._before, {}
        match self.state:
            case IncrementalFetchPlan(session_id, epoch) if keep:
                changed = [key for key, wanted in before.items() if self.requested.get(key) != wanted]
                named = [key for key in changed if key in self.requested]
                # New partitions come before moved ones, each in the order in which they were changed.
                named.sort(key=lambda key: before[key] is not None)
                requested = {key: self.requested[key] for key in named}
                forgotten = tuple(key for key in changed if key not in self.requested)
                return FetchPlan(session_id, epoch, requested, forgotten, len(self.requested))
            case FullFetchPlan(session_id) | IncrementalFetchPlan(session_id):
                epoch = INITIAL_EPOCH if keep else FINAL_EPOCH
                return FetchPlan(session_id, epoch, dict(self.requested), (), len(self.requested))
            case never:
                assert_never(never)

    def receive(self, plan: FetchPlan, reply: SessionResponseFields) -> AcceptedResponse | RejectedResponse:
        """Check the broker's response to *plan*, and set the session id and epoch of the next fetch accordingly.

        The response is rejected if it has a top-level error, if its session id or partitions do not match *plan*,
        or if the session was given up since *plan*, by ``discard_plan``, ``restart`` or ``close``. The next fetch
        is a full one after a rejection, and after a response without a session id.
        """
        if isinstance(self.state, FullFetchPlan) and not plan.is_full:
            # The session was given up after this plan.
            return RejectedResponse(RejectionReason.OUTDATED, reply.error)
        rejection = self._find_rejection(plan, reply)
        if rejection is not None:
            # An evicted session is gone. Any other is closed by the next fetch, since both sides disagree about it.
            gone = rejection is RejectionReason.EVICTED or plan.epoch == FINAL_EPOCH
            self._start_over(NO_SESSION if gone else self._session_to_replace(plan, reply))
            return RejectedResponse(rejection, reply.error)
        is_throttled = plan.is_full and not reply.keys and reply.throttle_ms > 0
        if is_throttled or reply.session_id == NO_SESSION or plan.epoch == FINAL_EPOCH:
            self._start_over(NO_SESSION)
        elif plan.is_full:
            self.state = IncrementalFetchPlan(reply.session_id, next_epoch(INITIAL_EPOCH))
        else:
            self.state = IncrementalFetchPlan(reply.session_id, next_epoch(plan.epoch))
        return AcceptedResponse(self.session_id)

    def discard_plan(self, plan: FetchPlan) -> None:
        """Make the next fetch a full one that replaces the session, because there is no response to *plan*.

        The broker may or may not have applied *plan*, so the state of its session is not known.
        """
        self._start_over(plan.session_id)

    def restart(self) -> None:
        """Make the next fetch a full one, which names every partition and replaces the broker's session."""
        self._start_over(self.state.session_id)

    def close(self) -> FetchPlan | None:
        """Forget the session; return the fetch, without partitions, that closes it at the broker.

        Return None if there is no session, as on a second call.
        """
        session_id = self.state.session_id
        self._start_over(NO_SESSION)
        return FetchPlan(session_id, FINAL_EPOCH, {}, (), 0) if session_id != NO_SESSION else None

    @property
    def session_id(self) -> SessionId:
        """The id of the session that the next fetch can continue; 0 if the next fetch must be a full one."""
        return self.state.session_id if isinstance(self.state, IncrementalFetchPlan) else NO_SESSION

    def _start_over(self, closing: SessionId) -> None:
        self.state = FullFetchPlan(closing)

    def _session_to_replace(self, plan: FetchPlan, reply: SessionResponseFields) -> SessionId:
        return reply.session_id if plan.is_full and reply.session_id != NO_SESSION else plan.session_id

    def _find_rejection(self, plan: FetchPlan, reply: SessionResponseFields) -> RejectionReason | None:
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
            whole = plan.requested.keys() == set(reply.keys)
            throttled = not reply.keys and reply.throttle_ms > 0
            return None if whole or throttled else RejectionReason.DISAGREED
        if reply.session_id not in (NO_SESSION, plan.session_id):
            return RejectionReason.DISAGREED
        known = all(self.get_planned(key) is not None for key in reply.keys)
        return None if known else RejectionReason.DISAGREED
