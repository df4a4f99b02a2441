"""What one connection may ask for."""

from typing import Final

import attrs

__all__ = ["DEFAULT_LIMITS", "RequestLimits"]


@attrs.frozen
class RequestLimits:
    """The options of these names tell why."""

    in_flight: int = 64
    """Requests without an answer; beyond, the connection is not read. A broker takes one at a time."""
    fetch_partitions: int = 100_000
    """Of a fetch: named, forgotten, or topics without any."""


DEFAULT_LIMITS: Final = RequestLimits()
