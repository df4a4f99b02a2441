"""The pair (session id, session epoch) of a fetch request (KIP-227; Kafka's ``FetchMetadata``)."""

from typing import Final, NewType

SessionId = NewType("SessionId", int)
"""Granted by a broker; positive, opaque. 0 stands for none."""

NO_SESSION: Final = SessionId(0)
INITIAL_EPOCH: Final = 0
"""Asks for a new session; whatever session the id names is closed on the way."""
FINAL_EPOCH: Final = -1
"""Asks for no session; whatever session the id names is closed on the way."""
_LAST_EPOCH: Final = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """The epoch after *epoch*: 1 after 2**31 - 1, since 0 would ask for a new session; negative ones stay."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _LAST_EPOCH else epoch + 1


def is_full(epoch: int) -> bool:
    """Whether a request with this epoch names every partition it wants."""
    return epoch in (INITIAL_EPOCH, FINAL_EPOCH)
