"""The schedule of Python's cyclic garbage collection: seldom, since it stops all tasks.

Objects of one client fetch are freed by reference counts. Objects of a connection refer to each other, so that only
a collection frees them. By default, Python collects everything when a quarter of it is new: with some hundreds of
clients that takes a tenth of a second, several times a minute.
"""

import ctypes
import gc
from contextlib import suppress
from typing import Final

import trio

__all__ = ["GarbageCollector", "drop_tracebacks"]

_THRESHOLDS: Final = (10_000, 50, 1_000_000)
"""The thresholds of the three generations; Python itself practically never collects the oldest."""
_M_MMAP_THRESHOLD: Final = -3
"""A parameter of glibc's mallopt, which only ctypes can call. Measured with glibc 2.36: after twenty buffers of 8
MiB, three times allocated and freed between small objects, the process has 172 MiB, with this parameter 12 MiB.
After 4,000 objects of up to 60 kB of which every fiftieth stays, it has 115 MiB, and 15 MiB after
``malloc_trim``."""
_LARGE_BYTES: Final = 1024**2
_EVERY_S: Final = 60.0
_SOON_S: Final = 5.0
_CONNECTION_BYTES: Final = 100 * 1024
"""The memory of a connection without a large fetch."""
_MOST_BYTES: Final = 10 * 1024**2
"""The memory of ended connections that starts a collection early."""


class GarbageCollector:
    """The schedule of cyclic garbage collections in this process: after client connections have ended.

    It collects once a minute if any has ended, and 5 s after those that have ended took about 10 MiB. Python itself
    collects only rarely after ``configure``, which also configures when the C library frees memory.

    Use: call ``configure`` once, when all modules are loaded; ``run`` from then on; and ``count_ended`` for each
        client connection that has ended.
    """

    def __init__(self) -> None:
        self._ended_bytes = 0
        self._are_many = trio.Event()

    def configure(self) -> None:
        """Exempt all present objects from garbage collection, and configure when Python and glibc free memory.

        Python rarely collects cycles by itself from now on. glibc returns buffers of more than 1 MiB to the system
        as soon as they are free; by default it would stop that after the first of them, so that the process would
        keep the memory of its peak.

        The oldest generation is not collected here: that would take a twentieth of the start.
        """
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        gc.collect(1)
        gc.freeze()
        gc.set_threshold(*_THRESHOLDS)

    def count_ended(self, fetch_bytes: int = 0) -> None:
        """Count an ended client connection: its objects refer to each other, so only a collection frees them.

        *fetch_bytes*: the memory that its last fetch took.
        """
        self._ended_bytes += _CONNECTION_BYTES + fetch_bytes
        if self._ended_bytes >= _MOST_BYTES:
            self._are_many.set()

    async def run(self) -> None:
        """Collect all garbage once a minute, or 5 s after much of it has come, until cancelled.

        A minute in which no connection has ended is skipped. glibc then returns the free parts of its heap to the
        system.
        """
        while True:
            with trio.move_on_after(_EVERY_S):
                await self._are_many.wait()
                await trio.sleep(_SOON_S)
            if self._ended_bytes:
                self._ended_bytes, self._are_many = 0, trio.Event()
                gc.collect()
                with suppress(OSError, AttributeError):  # another C library
                    ctypes.CDLL(None).malloc_trim(0)


def drop_tracebacks(error: BaseException) -> None:
    """Remove the tracebacks of *error* and of its causes, contexts and nested exceptions, once it is logged.

    A traceback refers to frames, whose variables often refer to the exception. Then only a garbage collection would
    free what the variables of these functions refer to, such as a large request.

    The context of a ``Cancelled`` keeps its traceback: it is the exception that the cancelling task is handling.
    """
    related, seen = [error], set[int]()
    while related:
        each = related.pop()
        seen.add(id(each))
        each.__traceback__ = None
        context = None if isinstance(each, trio.Cancelled) else each.__context__
        more = [each.__cause__, context, *getattr(each, "exceptions", ())]
        related += [one for one in more if one is not None and id(one) not in seen]
