"""The phases of a client fetch, from its request to its response; ``reader`` has the transitions."""

import attrs

from proxy.fetch.converting import Job
from proxy.wire.frames import Pieces

__all__ = ["Asking", "Connecting", "Converting", "Delayed", "Pausing", "Phase", "Resolving"]


@attrs.frozen
class Connecting:
    """The first phase: the first connection to the leader opens, which shows whether it names topics by id."""


@attrs.frozen
class Resolving:
    """The phase in which metadata is refreshed: the topology lacks a topic, or contradicts a broker's error."""

    until_s: float
    """The time after which the fetch proceeds without new metadata."""


@attrs.frozen
class Asking:
    """The phase in which the fetch waits for logs.

    It ends when there are enough records, or the max wait is over, and the state of all other logs is known.
    """


@attrs.frozen
class Pausing:
    """The phase in which the fetch of a client below Fetch v8 waits until the end of a throttling.

    The broker's response had no partitions.
    """

    until_s: float
    """The end of the throttling, at which brokers are asked again."""


@attrs.frozen
class Converting:
    """The phase in which conversions of records begin, until the size of the result of each is known."""

    jobs: tuple[Job, ...]
    """The partitions of the response, with the conversions of those that need one."""


@attrs.frozen
class Delayed:
    """The last phase: the response is ready, but kept until a time, so that the client does not ask again at once.

    The client is throttled, or its broker is unavailable.
    """

    until_s: float
    """The time at which the response is sent."""
    pieces: Pieces
    """The encoded response."""


Phase = Connecting | Resolving | Asking | Pausing | Converting | Delayed
