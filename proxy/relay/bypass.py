"""The decision which fetches of one client connection are forwarded unchanged."""

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from proxy.bypass import Bypass
from proxy.cluster.topology import BrokerId, Topology
from proxy.fetch.client_sessions import ClientSessions
from proxy.session.epochs import INITIAL_EPOCH, NO_SESSION, is_full
from proxy.wire.fetch import FetchRequest, Topic

__all__ = ["BypassState"]

_GONE_AFTER: Final = 3
"""Consecutive forwarded fetches after which the client no longer counts as using its reader.

Without this bound, a client whose fetches alternate between two sets of topics would have a new session created
every other time."""


@attrs.define
class BypassState:
    """Which fetches of a connection bypass the reader; judges them in order.

    A fetch within a session names only partitions that changed. If Sidefetch keeps the session, it knows the
    topics; otherwise the broker created the session in a forwarded fetch, and its topics are those of the forwarded
    fetches. Neither side can continue the other's session: a client that changes sides gets
    FETCH_SESSION_ID_NOT_FOUND (70) and starts again with a full fetch, which is the first on the new side.
    """

    _node_id: BrokerId
    """The broker for which the client's listener stands."""
    _ours: ClientSessions
    _session: frozenset[Topic] = frozenset()
    """The topics of the session that the client has with the broker itself."""
    _in_a_row: int = 0
    is_only: bool = False
    """Whether all fetches must be forwarded, because Sidefetch cannot log in to brokers as this client."""
    left_behind: int = NO_SESSION
    """The broker's session of the last fetch, if that fetch was the first not to be forwarded; else NO_SESSION."""

    @property
    def is_taken(self) -> bool:
        """Whether the client's fetches are forwarded until the bypass rules change."""
        return self._in_a_row >= _GONE_AFTER

    def takes(self, request: FetchRequest, bypass: Bypass, topology: Topology) -> bool:
        """Return whether the connection's next fetch is forwarded.

        A topic id that *topology* does not know matches no topic; the reader gets that fetch and requests metadata.
        A session that Sidefetch keeps for the client is closed if the fetch is forwarded. Cost: O(1) without a
        bypass, else O(topics).
        """
        ours = self._ours.topics(request.session_id, self._node_id) if bypass or self._session else frozenset()
        topics = self._topics(request, ours or self._session) if bypass else frozenset()
        takes = self.is_only or bypass.matches(request.header.client_id, _names(topics, topology))
        if ours and takes:
            self._ours.close(request.session_id, self._node_id)
            takes = is_full(request.session_epoch)  # the reader answers all others that their session is unknown
        self.left_behind = request.session_id if self._session and not (takes or ours) else NO_SESSION
        self._session = topics if takes and request.session_epoch >= INITIAL_EPOCH else frozenset()
        self._in_a_row = self._in_a_row + 1 if takes else 0
        return takes

    def _topics(self, request: FetchRequest, of_session: frozenset[Topic]) -> frozenset[Topic]:
        """Return the topics of a fetch, including those of its session."""
        named = frozenset(section.topic for section in request.sections)
        is_within = request.session_id != NO_SESSION and request.session_epoch != INITIAL_EPOCH
        return named | of_session if is_within else named


def _names(topics: Iterable[Topic], topology: Topology) -> Iterator[str]:
    for topic in topics:
        if isinstance(topic, str):
            yield topic
        elif (info := topology.topic(topic)) is not None and info.name is not None:
            yield info.name
