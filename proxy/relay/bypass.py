"""Which fetches of one client connection pass to the broker as they came."""

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from proxy.bypass import Bypass
from proxy.fetch.topology import Topology
from proxy.session.epochs import INITIAL_EPOCH, NO_SESSION
from proxy.wire.fetch import FetchRequest, Topic

__all__ = ["WayOut"]

_GONE_AFTER: Final = 3
"""Fetches that pass, one after another, before the client is taken to have left its reader.

A client whose fetches name now these topics, now those, would else have a new session made every other time.
"""


@attrs.define
class WayOut:
    """Judges each fetch of a connection in turn.

    A fetch within a session names only what has changed. Sidefetch grants no sessions, so a session that a fetch is
    in was granted by the broker to a fetch that passed, and its topics are those of the fetches that passed in it.
    """

    _session: frozenset[Topic] = frozenset()
    """Topics of the session that the client has with the broker itself."""
    _in_a_row: int = 0
    left_behind: int = NO_SESSION
    """The session that the client's last fetch was in, where it had the broker grant it and passes no more."""

    @property
    def is_taken(self) -> bool:
        """Whether the client's fetches pass for good, until told otherwise."""
        return self._in_a_row >= _GONE_AFTER

    def takes(self, request: FetchRequest, bypass: Bypass, topology: Topology) -> bool:
        """Whether this fetch, the connection's next, passes.

        An id that *topology* does not know matches no topic: the reader, to which such a fetch goes, has it learnt.
        Cost: O(1) without a bypass, else O(topics).
        """
        topics = self._topics(request) if bypass else frozenset()
        takes = bypass.matches(request.header.client_id, _names(topics, topology))
        self.left_behind = request.session_id if self._session and not takes else NO_SESSION
        self._session = topics if takes and request.session_epoch >= INITIAL_EPOCH else frozenset()
        self._in_a_row = self._in_a_row + 1 if takes else 0
        return takes

    def _topics(self, request: FetchRequest) -> frozenset[Topic]:
        """What it is about, named or not."""
        named = frozenset(section.topic for section in request.sections)
        is_within = request.session_id != NO_SESSION and request.session_epoch != INITIAL_EPOCH
        return named | self._session if is_within else named


def _names(topics: Iterable[Topic], topology: Topology) -> Iterator[str]:
    for topic in topics:
        if isinstance(topic, str):
            yield topic
        elif (info := topology.topic(topic)) is not None and info.name is not None:
            yield info.name
