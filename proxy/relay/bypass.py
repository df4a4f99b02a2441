"""The bypass: the decision which fetches of one client connection are forwarded to the broker unchanged."""

from typing import Final

import attrs

from proxy.cluster.topology import BrokerId, Topology
from proxy.fetch.client_sessions import ClientSessions
from proxy.fetch_rules import FetchRules
from proxy.session.epochs import INITIAL_EPOCH, NO_SESSION, is_full
from proxy.wire.fetch import FetchRequest, Topic

__all__ = ["BypassState"]

_GONE_AFTER: Final = 3
"""Consecutive forwarded fetches after which the client no longer counts as using its reader.

Without this bound, a client whose fetches alternate between two sets of topics would have a new session created
every other time."""


@attrs.define
class BypassState:
    """The state that decides which fetches of one client connection are forwarded to the broker unchanged.

    Sidefetch's own reader answers all other fetches. A fetch within a session names only partitions that changed,
    so the topics of the session must be known. Sidefetch knows those of the sessions that it keeps for clients; the
    topics of a session that the broker created in a forwarded fetch are collected from the forwarded fetches.

    Neither side can continue the other's session: a client whose fetches change sides gets
    FETCH_SESSION_ID_NOT_FOUND (70) and starts again with a full fetch, which is the first on the new side.
    """

    _node_id: BrokerId
    """The broker for which the client's listener stands."""
    _ours: ClientSessions
    """The fetch sessions that Sidefetch keeps for its clients."""
    _session: frozenset[Topic] = frozenset()
    """The topics of the session that the client has with the broker itself."""
    _in_a_row: int = 0
    """The number of fetches that were forwarded since the last one that was not."""
    is_only: bool = False
    """Whether all fetches must be forwarded, because Sidefetch cannot log in to brokers as this client."""
    left_behind: int = NO_SESSION
    """The broker's session of the last fetch, if that fetch was the first not to be forwarded; else NO_SESSION."""

    @property
    def is_taken(self) -> bool:
        """Whether at least the last three fetches were all forwarded: the client needs no reader any more."""
        return self._in_a_row >= _GONE_AFTER

    def takes(self, request: FetchRequest, bypass: FetchRules, topology: Topology) -> bool:
        """Return whether *request* is forwarded to the broker; call this once for each fetch, in order.

        A fetch matches if *bypass* has its client id, a topic of it or a topic of its session, or if ``is_only`` is
        set. A topic id that *topology* does not know matches no topic; the reader gets that fetch and requests
        metadata.

        A fetch that matches is forwarded. If it belongs to a session that Sidefetch keeps, this session is closed,
        and only a full fetch is forwarded: the reader answers an incremental one with the error that its session is
        unknown. Updates ``left_behind``. Cost: O(1) without a bypass, else O(topics).
        """
        ours = self._ours.topics(request.session_id, self._node_id) if bypass or self._session else frozenset()
        topics = self._topics(request, ours or self._session) if bypass else frozenset()
        takes = self.is_only or bypass.matches(request.header.client_id, topology.known_names(topics))
        if ours and takes:
            self._ours.close(request.session_id, self._node_id)
            takes = is_full(request.session_epoch)  # the reader answers all others that their session is unknown
        self.left_behind = request.session_id if self._session and not (takes or ours) else NO_SESSION
        self._session = topics if takes and request.session_epoch >= INITIAL_EPOCH else frozenset()
        self._in_a_row = self._in_a_row + 1 if takes else 0
        return takes

    def _topics(self, request: FetchRequest, of_session: frozenset[Topic]) -> frozenset[Topic]:
        """Return the topics that a fetch names, and those of its session, *of_session*, unless it begins one."""
        named = frozenset(section.topic for section in request.sections)
        is_within = request.session_id != NO_SESSION and request.session_epoch != INITIAL_EPOCH
        return named | of_session if is_within else named
