"""The definition of an upgrade, and the steps of handling one request."""

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
"""The body of a request or response: everything behind its header."""

_I32: Final = struct.Struct(">i")


@attrs.frozen
class AskBroker:
    """Send a request to the client's own broker, in the newer version; the result is the body of the response."""

    body: Pieces
    is_answered: bool = True
    """Whether the broker answers; if not, the result is None at once."""
    is_last: bool = True
    """Whether no request follows, so that the client's later requests may be sent now. False if that depends on the
    response: later requests wait for it, and reach the broker in the client's order."""


@attrs.frozen
class AskCoordinator:
    """Send a request to the coordinator of *group*; the result is the body of the response, None if none is found.

    Later requests wait: a later commit to the client's own broker must not be overwritten by this one.
    """

    group: str
    body: Pieces
    afresh: bool
    """Whether the known coordinator has moved, or is loading: it is looked up again, after a while."""


@attrs.frozen
class Compute:
    """Call *run*, in a thread if it may take long; the result is its return value. Later requests wait."""

    run: Callable[[], object]
    size_bytes: int
    """The size of its input."""


Steps = Generator[AskBroker | AskCoordinator | Compute, Any, Pieces | None]
"""The steps of a request; returns the response's body, or None for a request without a response.

Raises: MalformedFrame: before the first step, the request cannot be decoded; later, the broker's response cannot.
    ClientProtocolError: the client's connection must be closed."""


def _never(_: memoryview) -> int:
    return 0


@attrs.frozen
class Upgrade:
    """The upgrade of one version of an API for brokers that serve only newer ones."""

    api: str
    """Kafka's name of the API."""
    key: int
    version: int
    to: int
    """The nearest version that brokers kept. Brokers that do not serve it cannot answer."""
    adds: str
    """The meaning that the newer request adds."""
    loses: str
    """The meaning of the older version that is lost."""
    steps: Callable[[memoryview], Steps] | None
    """Returns the steps for a request's body; None for fetches, which are not upgraded one by one."""
    throttle_ms: Callable[[memoryview], int] = _never
    """Returns the throttle time in a broker's response, in ms, if this client is too old to observe it."""


def same_layout(body: memoryview) -> Steps:
    """Upgrade a request whose layout is the same in both versions, both ways."""
    answer = yield AskBroker([body])
    return [answer]


def upgrade_once(
    lift: Callable[[memoryview], Pieces], lower: Callable[[memoryview], Pieces]
) -> Callable[[memoryview], Steps]:
    """Return steps that send the upgraded request and downgrade its response."""

    def steps(body: memoryview) -> Steps:
        answer = yield AskBroker(lift(body))
        return lower(answer)

    return steps


def throttle_in_front(answer: memoryview) -> int:
    """Return the throttle time in ms. Layout: ``throttle_time: i32 | ...``."""
    return int(_I32.unpack_from(answer)[0]) if len(answer) >= _I32.size else 0


def throttle_at_the_end(answer: memoryview) -> int:
    """Return the throttle time in ms. Layout: ``... | throttle_time: i32``."""
    return throttle_in_front(answer[-_I32.size :])
