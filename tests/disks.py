"""A disk with little room: a real one where the system lets us have it, else a limit to the size of files."""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["limited_files", "nearly_full"]

_DISK_BYTES = 256 * 1024


@contextmanager
def limited_files(most_bytes: int) -> Iterator[Callable[[], None]]:
    """Limit the size of this process's files to *most_bytes*; a write beyond it is cut, then fails.

    The yielded function ends the limit early.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@contextmanager
def nearly_full(folder: Path, room_bytes: int) -> Iterator[Callable[[], None]]:
    """Put *folder* on a disk with *room_bytes* left; the yielded function frees the rest."""
    if os.geteuid() != 0 or os.system(f"mount -t tmpfs -o size={_DISK_BYTES} none '{folder}' 2>/dev/null"):
        with limited_files(room_bytes) as make_room:
            yield make_room
        return
    try:
        others = folder / "others"
        others.write_bytes(b"x" * (_DISK_BYTES - room_bytes))
        yield others.unlink
    finally:
        os.system(f"umount '{folder}'")
