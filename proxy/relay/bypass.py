"""Which fetches of one client connection pass to the broker as they came."""

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
"""Fetches that pass, one after another, before the client is taken to have left its reader.

A client whose fetches name now these topics, now those, would else have a new session made every other time.
"""


@attrs.define
class BypassState:
    """Judges each fetch of a connection in turn.

    A fetch within a session names only what has changed. If the session is one of ours, its topics are known there;
    any other was granted by the broker to a fetch that passed, and its topics are those of the fetches that passed
    in it. Neither side can go on in the other's session: who changes sides is told that it is not found (70), and
    begins anew with a full fetch, which is the first to pass, or the first not to.
    """

    _node_id: BrokerId
    """Of the broker whose listener the client came to."""
    _ours: ClientSessions
    _session: frozenset[Topic] = frozenset()
    """Topics of the session that the client has with the broker itself."""
    _in_a_row: int = 0
    is_only: bool = False
    """Whether there is no other way for this client: nobody could read for it."""
    left_behind: int = NO_SESSION
    """The session that the client's last fetch was in, where it had the broker grant it and passes no more."""

    @property
    def is_taken(self) -> bool:
        """Whether the client's fetches pass for good, until told otherwise."""
        return self._in_a_row >= _GONE_AFTER

    def takes(self, request: FetchRequest, bypass: Bypass, topology: Topology) -> bool:
        """Whether this fetch, the connection's next, passes.

        An id that *topology* does not know matches no topic: the reader, to which such a fetch goes, has it learnt.
        A session of ours that is in the way is closed. Cost: O(1) without a bypass, else O(topics).
        """
        ours = self._ours.topics(request.session_id, self._node_id) if bypass or self._session else frozenset()
        topics = self._topics(request, ours or self._session) if bypass else frozenset()
        takes = self.is_only or bypass.matches(request.header.client_id, _names(topics, topology))
        if ours and takes:
            self._ours.close(request.session_id, self._node_id)
            takes = is_full(request.session_epoch)  # the reader tells all others that their session is gone
        self.left_behind = request.session_id if self._session and not (takes or ours) else NO_SESSION
        self._session = topics if takes and request.session_epoch >= INITIAL_EPOCH else frozenset()
        self._in_a_row = self._in_a_row + 1 if takes else 0
        return takes

    def _topics(self, request: FetchRequest, of_session: frozenset[Topic]) -> frozenset[Topic]:
        """What it is about, named or not."""
        named = frozenset(section.topic for section in request.sections)
        is_within = request.session_id != NO_SESSION and request.session_epoch != INITIAL_EPOCH
        return named | of_session if is_within else named


def _names(topics: Iterable[Topic], topology: Topology) -> Iterator[str]:
    for topic in topics:
        if isinstance(topic, str):
            yield topic
        elif (info := topology.topic(topic)) is not None and info.name is not None:
            yield info.name
