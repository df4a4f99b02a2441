"""The bypass: the decision which fetches of one client connection are forwarded to the broker unchanged."""

from typing import Final

import attrs

from proxy.cluster.topology import BrokerId, Topology
from proxy.fetch.client_sessions import ClientSessions
from proxy.fetch_rules import FetchRules
from proxy.session.epochs import INITIAL_EPOCH, NO_SESSION, is_full
from proxy.wire.fetch import FetchRequest, Topic

__all__ = ["BypassState"]

_LASTING_AFTER: Final = 3
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
    _client_sessions: ClientSessions
    """The fetch sessions that Sidefetch keeps for its clients."""
    _session_topics: frozenset[Topic] = frozenset()
    """The topics of the session that the client has with the broker itself."""
    _consecutive: int = 0
    """The number of fetches that were forwarded since the last one that was not."""
    is_forced: bool = False
    """Whether all fetches must be forwarded, because Sidefetch cannot log in to brokers as this client."""
    abandoned_session_id: int = NO_SESSION
    """The broker's session of the last fetch, if that fetch was the first not to be forwarded; else NO_SESSION."""

    @property
    def is_lasting(self) -> bool:
        """Whether at least the last three fetches were all forwarded: the client needs no reader any more."""
        return self._consecutive >= _LASTING_AFTER

    def decide(self, request: FetchRequest, bypass: FetchRules, topology: Topology) -> bool:
        """Return whether *request* is forwarded to the broker; call this once for each fetch, in order.

        A fetch matches if *bypass* has its client id, a topic of it or a topic of its session, or if ``is_forced``
        is set. A topic id that *topology* does not know matches no topic; the reader gets that fetch and requests
        metadata.

        A fetch that matches is forwarded. If it belongs to a session that Sidefetch keeps, this session is closed,
        and only a full fetch is forwarded: the reader answers an incremental one with the error that its session is
        unknown. Updates ``abandoned_session_id``. Cost: O(1) without a bypass, else O(topics).
        """
        ours = (
            self._client_sessions.topics(request.session_id, self._node_id)
            if bypass or self._session_topics
            else frozenset()
        )
        topics = self._topics(request, ours or self._session_topics) if bypass else frozenset()
        is_forwarded = self.is_forced or bypass.matches(request.header.client_id, topology.known_names(topics))
        if ours and is_forwarded:
            self._client_sessions.close(request.session_id, self._node_id)
            is_forwarded = is_full(
                request.session_epoch
            )  # the reader answers all others that their session is unknown
        self.abandoned_session_id = (
            request.session_id if self._session_topics and not (is_forwarded or ours) else NO_SESSION
        )
        self._session_topics = topics if is_forwarded and request.session_epoch >= INITIAL_EPOCH else frozenset()
        self._consecutive = self._consecutive + 1 if is_forwarded else 0
        return is_forwarded

    def _topics(self, request: FetchRequest, of_session: frozenset[Topic]) -> frozenset[Topic]:
        """Return the topics that a fetch names, and those of its session, *of_session*, unless it begins one."""
        named = frozenset(section.topic for section in request.sections)
        is_within = request.session_id != NO_SESSION and request.session_epoch != INITIAL_EPOCH
        return named | of_session if is_within else named
