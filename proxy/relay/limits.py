"""Limits on the requests of one connection."""

from typing import Final

import attrs

__all__ = ["DEFAULT_LIMITS", "RequestLimits"]


@attrs.frozen
class RequestLimits:
    """Limits on the requests of one connection; the options of the same names give the reasons."""

    in_flight: int = 64
    """The number of unanswered requests at which Sidefetch stops reading the connection. A broker stops at one."""
    fetch_partitions: int = 100_000
    """The number of entries of a fetch: named and forgotten partitions, and topics without any."""


DEFAULT_LIMITS: Final = RequestLimits()
