"""What a lift is, and the steps that answering one request takes."""

import struct
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

import attrs

__all__ = [
    "AskBroker",
    "AskCoordinator",
    "Compute",
    "Pieces",
    "Steps",
    "Upgrade",
    "same_layout",
    "throttle_at_the_end",
    "throttle_in_front",
    "upgrade_once",
]

Pieces = Sequence[bytes | memoryview]
"""A request's or an answer's body: all behind its header."""

_I32: Final = struct.Struct(">i")


@attrs.frozen
class AskBroker:
    """Ask the client's own broker, in the version lifted to; back comes the body of its answer."""

    body: Pieces
    is_answered: bool = True
    """Whether the broker answers; if not, None comes back at once."""
    is_last: bool = True
    """Whether no request follows, so that those that the client sent later may be sent now. Where that depends on
    the response, False: they wait for it, and reach the broker in the client's order."""


@attrs.frozen
class AskCoordinator:
    """Ask the coordinator of *group*; back comes the body of its answer, or None if there is none to be had.

    Later requests wait: a later commit to the client's own broker must not be overwritten by this one.
    """

    group: str
    body: Pieces
    afresh: bool
    """Whether it has moved since it was found, or is not ready: it is found again, after a while."""


@attrs.frozen
class Compute:
    """Call *run*, in a thread if that may take long; back comes what it returns. Later requests wait."""

    run: Callable[[], object]
    size_bytes: int
    """Of what it works on."""


Steps = Generator[AskBroker | AskCoordinator | Compute, Any, Pieces | None]
"""Ends with the answer's body, or None for a request that is not answered.

Raises: MalformedFrame: the request is no such request, before the first step; the broker's answer is none, later.
        ClientProtocolError: the client must be hung up on.
"""


def _never(_: memoryview) -> int:
    return 0


@attrs.frozen
class Upgrade:
    """How one version of an API is answered by a broker that serves only newer ones."""

    api: str
    """As Kafka names it."""
    key: int
    version: int
    to: int
    """The nearest version that brokers kept. A broker that does not serve it cannot answer."""
    adds: str
    """What the newer request says beyond the older one."""
    loses: str
    """What of the older version's meaning cannot be had."""
    steps: Callable[[memoryview], Steps] | None
    """Given a request's body; None for fetches, which are read and not lifted one by one."""
    throttle_ms: Callable[[memoryview], int] = _never
    """How long a broker's answer says that the client must be silent, if this client is too old to heed it."""


def same_layout(body: memoryview) -> Steps:
    """The layout is the same in both versions, both ways."""
    answer = yield AskBroker([body])
    return [answer]


def upgrade_once(
    lift: Callable[[memoryview], Pieces], lower: Callable[[memoryview], Pieces]
) -> Callable[[memoryview], Steps]:
    """The request lifted is asked, the answer lowered."""

    def steps(body: memoryview) -> Steps:
        answer = yield AskBroker(lift(body))
        return lower(answer)

    return steps


def throttle_in_front(answer: memoryview) -> int:
    """Layout: ``throttle_time: i32 | ...``."""
    return int(_I32.unpack_from(answer)[0]) if len(answer) >= _I32.size else 0


def throttle_at_the_end(answer: memoryview) -> int:
    """Layout: ``... | throttle_time: i32``."""
    return throttle_in_front(answer[-_I32.size :])
