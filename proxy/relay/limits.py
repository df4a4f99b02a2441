"""Limits on the requests of one client connection."""

from typing import Final

import attrs

from proxy.errors import ClientProtocolError, LimitReached
from proxy.wire.apis import KNOWN_KEYS, ApiKey

__all__ = ["DEFAULT_LIMITS", "MOST_SASL_BYTES", "RequestLimits", "check_size"]

MOST_SASL_BYTES: Final = 512 * 1024
"""The largest SASL request or token: the default of the brokers' sasl.server.max.receive.size."""
_SASL: Final = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
_FETCH_BYTES: Final = 1024 * 1024
"""The room in a fetch for client id, rack and tagged fields."""
_FETCH_PARTITION_BYTES: Final = 289
"""The largest size of a partition in a fetch: it is alone in a topic with a name of 249 bytes. Partitions that the
fetch forgets share this room: if it forgets as many, names may have 120 bytes on average."""


def check_size(fetch_partitions: int, api_key: int, size_bytes: int) -> None:
    """Check the size of a request before it is received: how much memory it takes depends on its API.

    A fetch may be as large as one of *fetch_partitions* partitions, each in a topic of its own, can be. SASL
    requests may have 512 KiB, and so may frames without a known API key: they can only be SASL tokens.

    Raises: LimitReached, ClientProtocolError: it is too large.
    """
    most_bytes = _FETCH_BYTES + fetch_partitions * _FETCH_PARTITION_BYTES
    if api_key == ApiKey.FETCH and size_bytes > most_bytes:
        raise LimitReached(
            "max-fetch-partitions", f"a fetch of {size_bytes} bytes, {most_bytes} suffice for {fetch_partitions}"
        )
    if size_bytes > MOST_SASL_BYTES and (api_key in _SASL or api_key not in KNOWN_KEYS):
        what = "a SASL request" if api_key in _SASL else "a token, or a request of an unknown API,"
        raise ClientProtocolError(f"{what} of {size_bytes} bytes, {MOST_SASL_BYTES} are allowed")


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
