"""The definition of an upgrade of a request to a version that brokers serve, and the steps that carry it out."""

import struct
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

import attrs

__all__ = [
    "Compute",
    "Pieces",
    "SendToBroker",
    "SendToCoordinator",
    "Step",
    "Steps",
    "Upgrade",
    "read_throttle_at_the_end",
    "read_throttle_in_front",
    "same_layout",
    "upgrade_once",
]

Pieces = Sequence[bytes | memoryview]
"""The body of a request or response: everything behind its header."""

_I32: Final = struct.Struct(">i")


@attrs.frozen
class SendToBroker:
    """A step that sends a request in the newer version to the client's own broker.

    The result of the step is the body of the broker's response, or None if the request has no response.
    """

    body: Pieces
    """The body of the request."""
    is_answered: bool = True
    """Whether the broker answers; if not, the result is None at once."""
    is_last: bool = True
    """Whether no request follows, so that the client's later requests may be sent now. False if that depends on the
    response: later requests wait for it, and reach the broker in the client's order."""


@attrs.frozen
class SendToCoordinator:
    """A step that sends a request in the newer version to the coordinator of consumer group *group*.

    The result of the step is the body of the response, or None if no coordinator was found. Later requests of the
    client wait: a later commit to the client's own broker must not be overwritten by this one.
    """

    group: str
    body: Pieces
    """The body of the request."""
    is_retry: bool
    """Whether to look up the coordinator again, after a pause: the known one has moved, or is loading."""


@attrs.frozen
class Compute:
    """A step that calls *run*, in a thread if its input is large; later requests of the client wait for it.

    The result of the step is the return value of *run*.
    """

    run: Callable[[], object]
    size_bytes: int
    """The size of its input; above 16 KiB, it runs in a thread."""


Step = SendToBroker | SendToCoordinator | Compute
Steps = Generator[Step, Any, Pieces | None]
"""The steps of upgrading one request: gets the result of each; returns the body of the client's response, or None.

None stands for a request without a response.

Raises: MalformedFrame: before the first step, the request cannot be decoded; later, the broker's response cannot.
    ClientProtocolError: the client's connection must be closed."""


def _no_throttle(_: memoryview) -> int:
    return 0


@attrs.frozen
class Upgrade:
    """The upgrade of requests in one removed version of an API to a newer version, and of their responses back."""

    api: str
    """Kafka's name of the API."""
    key: int
    """The API key."""
    version: int
    """The version of the client's requests."""
    to: int
    """The nearest version that brokers kept. Brokers that do not serve it cannot answer."""
    adds: str
    """The meaning that the newer request adds, for the documentation."""
    loses: str
    """The meaning of the older version that is lost, for the documentation."""
    steps: Callable[[memoryview], Steps] | None
    """Returns the steps for a request's body; None for fetches, which Sidefetch answers itself."""
    throttle_ms: Callable[[memoryview], int] = _no_throttle
    """Returns the throttle time in a broker's response, in ms, if this client is too old to observe it."""


def same_layout(body: memoryview) -> Steps:
    """Return the steps for a request whose *body* has the same layout in both versions, as has its response.

    The only step sends the body unchanged; the client gets the body of the response unchanged.
    """
    answer = yield SendToBroker([body])
    return [answer]


def upgrade_once(
    upgrade: Callable[[memoryview], Pieces], downgrade: Callable[[memoryview], Pieces]
) -> Callable[[memoryview], Steps]:
    """Return a function that returns the steps for a request's body, for upgrades with one request to the broker.

    Args: upgrade:   converts the body of the request to the newer version.
          downgrade: converts the body of the broker's response to the client's version.
    """

    def steps(body: memoryview) -> Steps:
        answer = yield SendToBroker(upgrade(body))
        return downgrade(answer)

    return steps


def read_throttle_in_front(answer: memoryview) -> int:
    """Return the throttle time, in ms, at the beginning of the response body *answer*; 0 if that is too short.

    Layout: ``throttle_time: i32 | ...``.
    """
    return int(_I32.unpack_from(answer)[0]) if len(answer) >= _I32.size else 0


def read_throttle_at_the_end(answer: memoryview) -> int:
    """Return the throttle time, in ms, at the end of the response body *answer*; 0 if that is too short.

    Layout: ``... | throttle_time: i32``.
    """
    return read_throttle_in_front(answer[-_I32.size :])
