"""Session ids and session epochs of Fetch requests (KIP-227; Kafka's ``FetchMetadata``)."""

from typing import Final, NewType

SessionId = NewType("SessionId", int)
"""An opaque, positive number that a broker grants; 0 stands for no session."""

NO_SESSION: Final = SessionId(0)
INITIAL_EPOCH: Final = 0
"""The epoch that requests a new session, and closes the session that the id names."""
FINAL_EPOCH: Final = -1
"""The epoch that requests no session, and closes the session that the id names."""
_LAST_EPOCH: Final = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """Return the session epoch of the request that follows a request with *epoch*.

    1 follows 2**31 - 1, because 0 requests a new session. -1 (no session) follows a negative epoch.
    """
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _LAST_EPOCH else epoch + 1


def is_full(epoch: int) -> bool:
    """Return whether a request with this session epoch, 0 or -1, is full: it names all partitions to fetch."""
    return epoch in (INITIAL_EPOCH, FINAL_EPOCH)
