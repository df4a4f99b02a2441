"""When memory is given back.

When Python looks for garbage: seldom, since it stops everybody while it does.

What Sidefetch makes for an exchange is gone when that is, without being looked for. What a connection is made of
refers to itself, and does have to be found. Left to itself, Python looks at all there is when a quarter of it is
new: with some hundreds of clients that takes a tenth of a second, several times a minute.
"""

import ctypes
import gc
from contextlib import suppress
from typing import Final

import trio

__all__ = ["GarbageCollector"]

_THRESHOLDS: Final = (10_000, 50, 1_000_000)
"""Of the three generations; the oldest is in effect never looked at by Python itself."""
_M_MMAP_THRESHOLD: Final = -3
"""Of glibc's mallopt."""
_LARGE_BYTES: Final = 1024**2
_EVERY_S: Final = 60.0
_MOST_ENDED: Final = 1000
"""Connections of which something may be left: where they come and go by hundreds a second, that is too much."""


class GarbageCollector:
    """Use: ``settle`` once, when all is loaded; ``run`` from then on; ``ended`` for each connection that has."""

    def __init__(self) -> None:
        self._ended = 0
        self._are_many = trio.Event()

    def settle(self) -> None:
        """What is there now stays for good, and need not be looked at again.

        Large buffers are the system's again as soon as they are free. glibc would stop that with the first of them,
        so that what had been in use at once would stay with the process.

        What is old was looked at while it was loaded; once more would take a twentieth of the start.
        """
        with suppress(OSError, AttributeError):  # other C libraries
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        gc.collect(1)
        gc.freeze()
        gc.set_threshold(*_THRESHOLDS)

    def ended(self) -> None:
        """A connection is over: what it was made of will be looked for."""
        self._ended += 1
        if self._ended >= _MOST_ENDED:
            self._are_many.set()

    async def run(self) -> None:
        """Look, once a minute or after many connections, if there is anything to be found."""
        while True:
            with trio.move_on_after(_EVERY_S):
                await self._are_many.wait()
            if self._ended:
                self._ended, self._are_many = 0, trio.Event()
                gc.collect()
