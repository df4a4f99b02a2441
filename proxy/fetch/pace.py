"""How soon a client that wants very many partitions is read for again, after something has come."""

from typing import Final

from proxy.wire.fetch import FetchResponse

__all__ = ["Pace"]

_A_PARTITION_S: Final = 1e-6
"""What it costs a broker to look at one, more or less, and a client to read of one."""
_LEAST_S: Final = 1e-3
"""Less is not waited for."""
_MANY_BYTES: Final = 64 * 1024
"""Who gets so much at once is behind, and asks again at once."""


class Pace:
    """Keeps a little time between fetches that bring a little.

    Whatever has moved, a broker looks at every partition that is asked for, and a client that sends full fetches is
    answered about each. Asking again at once would pay for that with each record. Directly, the client's own
    slowness spaces its fetches; through Sidefetch it is quicker, so that it would fetch more often, for less.
    """

    __slots__ = ("until_s",)

    def __init__(self) -> None:
        self.until_s = float("-inf")
        """No fetch that may wait is sent before."""

    def answered(self, response: FetchResponse, wanted: int, now_s: float) -> None:
        """Something has come, or nothing; the client wants so many partitions."""
        pause_s = _A_PARTITION_S * wanted
        if pause_s < _LEAST_S:
            return
        if 0 < response.record_bytes < _MANY_BYTES:
            self.until_s = now_s + pause_s
