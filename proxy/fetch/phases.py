"""The phases of a client fetch, from its request to its response; ``reader`` has the transitions."""

import attrs

from proxy.fetch.converting import Job
from proxy.wire.frames import Pieces

__all__ = [
    "Answering",
    "Collecting",
    "Connecting",
    "Converting",
    "Delayed",
    "Finding",
    "Pausing",
    "Phase",
    "Resolving",
    "Updating",
]


@attrs.frozen
class Connecting:
    """The phase in which the fetch waits for the first connection to the leader.

    The connection shows whether the leader names topics by id. The phase ends at once if there was one before.
    """


@attrs.frozen
class Resolving:
    """The phase in which the fetch waits up to 5 s for metadata.

    The topology lacks a topic, has an error for it or names another leader of a partition; or the leader refused a
    topic id or epoch that Sidefetch took from the topology.
    """

    until_s: float
    """The time after which the fetch proceeds without new metadata."""


@attrs.frozen
class Updating:
    """The phase in which a thread adapts the client's partitions to its fetch, or to new metadata.

    A fetch of few partitions skips it.
    """

    resolving: Resolving | None
    """The phase to return to if topics are still not known; None if no metadata was requested for them."""


@attrs.frozen
class Finding:
    """The phase in which the logs of the partitions are found, some at a time, so that other clients are served.

    It ends at once for a fetch of few partitions.
    """


@attrs.frozen
class Collecting:
    """The phase in which the fetch waits for logs.

    It ends when two conditions hold: the fetch is due (``Positions.is_due``); and each partition is ready, in the
    response already, or counts as having nothing new (``Positions.is_sure``), with known offsets. Throttling, a
    failure or outdated metadata ends it earlier.
    """


@attrs.frozen
class Pausing:
    """The phase in which the fetch of a client below Fetch v8 waits for the end of a throttling.

    The broker's response had no partitions.
    """

    until_s: float
    """The end of the throttling, at which brokers are asked again."""


@attrs.frozen
class Converting:
    """The phase in which records are converted until the size of each result is known.

    The rest is converted while the response is sent.
    """

    jobs: tuple[Job, ...]
    """The partitions of the response, with the conversions of those that need one."""


@attrs.frozen
class Answering:
    """The phase in which a thread encodes a response with many changed partitions.

    Other responses skip it.
    """

    until_s: float | None = None
    """The time before which the errors of a fetch that is given up are not sent; None for other responses."""


@attrs.frozen
class Delayed:
    """The phase in which an encoded response is kept until a time; most fetches skip it.

    It delays the response to a throttled client below Fetch v8. Errors if a broker is unavailable are kept until
    0.25 s after the request, so that the client does not ask again at once. Top-level errors, and responses without
    partitions to throttled clients from v8 on, pass it without a delay.
    """

    until_s: float
    """The time at which the response is sent."""
    pieces: Pieces
    """The encoded response."""


Phase = Connecting | Resolving | Updating | Finding | Collecting | Pausing | Converting | Answering | Delayed
