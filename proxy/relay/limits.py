"""Limits on the requests of one client connection."""

from typing import Final

import attrs

__all__ = ["DEFAULT_LIMITS", "RequestLimits"]


@attrs.frozen
class RequestLimits:
    """Limits on the unanswered requests of one client connection, and on the partitions of one fetch.

    The options ``max-in-flight`` and ``max-fetch-partitions`` set them; their help gives the reasons.
    """

    in_flight: int = 64
    """The number of unanswered requests at which Sidefetch stops reading the connection. A broker stops at one."""
    fetch_partitions: int = 20_000
    """The largest number of topics in a fetch, of partitions that it names, and of partitions that it forgets."""


DEFAULT_LIMITS: Final = RequestLimits()
