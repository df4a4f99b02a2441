"""Limits on the requests of one client connection."""

from typing import Final

import attrs

from proxy.wire.apis import KNOWN_KEYS

__all__ = ["DEFAULT_LIMITS", "RequestLimits"]


@attrs.frozen
class RequestLimits:
    """Limits on one client connection: on its unanswered requests, the partitions of one fetch, and the APIs.

    The options ``max-in-flight``, ``max-fetch-partitions`` and ``allowed-apis`` set them; their help gives the
    reasons.
    """

    in_flight: int = 64
    """The number of unanswered requests at which Sidefetch stops reading the connection. A broker stops at one."""
    fetch_partitions: int = 20_000
    """The largest number of topics in a fetch, of partitions that it names, and of partitions that it forgets."""
    apis: frozenset[int] = KNOWN_KEYS
    """The keys of the APIs that the client may use."""


DEFAULT_LIMITS: Final = RequestLimits()
