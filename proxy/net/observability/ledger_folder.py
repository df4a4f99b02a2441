"""The ledger's files: the writer writes one at a time, and readers see only finished files.

The open file is ``.PROXY_ID-FIRST.open``; once it is large or old enough it becomes ``PROXY_ID-FIRST-NEXT.jsonl``,
where FIRST is the ``seq`` of its first row, and NEXT that of the next file's. Spark and ``*.jsonl`` ignore names
that begin with a dot. The open file is locked (``flock``), so that other processes see whether its writer lives.

All functions here may wait for the disk.
"""

import errno
import fcntl
import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, NamedTuple

import attrs

from proxy.net.observability.backlog import LedgerLine, LostLine
from proxy.telemetry.rows import Loss

__all__ = ["FileLimits", "LedgerFolder"]

_OPEN: Final = re.compile(r"\.(.+)-([0-9]{12})\.open")
_FINISHED: Final = re.compile(r"(.+)-([0-9]{12})-([0-9]{12})\.jsonl")
_TAIL_BYTES: Final = 1024 * 1024
"""The size of the first part, from the end, that is searched for the last whole row of a file left open."""
_MODE: Final = 0o640


@attrs.frozen
class FileLimits:
    """Limits of the ledger's files: the size and age at which one is finished, and the total size of all files."""

    file_bytes: int
    """The size at which a file is finished."""
    file_age_s: float
    """The time in seconds after which a file is finished."""
    total_bytes: int
    """The total size of the files in the folder; beyond it the oldest ones are deleted."""


@attrs.define
class _Current:
    """The open file."""

    descriptor: int
    path: Path
    first: int
    """The ``seq`` of its first row."""
    opened_s: float
    size_bytes: int = 0
    """The size of the rows that were written completely."""


class _Tail(NamedTuple):
    """The end of a file that was left open."""

    size_bytes: int
    """The size of the whole rows."""
    following: int
    """The ``seq`` of the next row."""
    cluster_id: str | None


class LedgerFolder:
    """The ledger files that one process writes to a folder; other processes may write theirs to the same folder.

    Rows go to one open file, which readers ignore. Finishing it gives it the name that readers look for; the next
    write opens a new file.
    """

    def __init__(self, folder: Path, proxy_id: str, limits: FileLimits, clock_s: Callable[[], float]) -> None:
        self._folder = folder
        self._proxy_id = proxy_id
        self._limits = limits
        self._clock_s = clock_s
        self._current: _Current | None = None
        self._next = 0
        """The ``seq`` after the last row that was written or reported as lost."""

    @property
    def room(self) -> int:
        """The number of bytes until the open file reaches its size limit; the whole limit if no file is open."""
        taken = 0 if self._current is None else self._current.size_bytes
        return max(self._limits.file_bytes - taken, 0)

    def write(
        self, losses: Sequence[Loss], lines: Sequence[LedgerLine], lost_line: Callable[[Loss], bytes]
    ) -> None:
        """Append rows for *losses*, encoded by *lost_line*, and then *lines* to the open file; open one if needed.

        Raises: OSError: the rows are not written; a part of them that was written is cut off, if the disk permits.
        """
        current = self._current or self._open()
        data = memoryview(b"".join([*map(lost_line, losses), *(line.data for line in lines)]))
        written = 0
        try:
            while written < len(data):
                written += os.write(current.descriptor, data[written:])
        except OSError:
            self._cut_off(current)
            raise
        current.size_bytes += len(data)
        seqs = [line.seq for line in lines] + [loss.last for loss in losses if loss.proxy_id == self._proxy_id]
        self._next = max([self._next, *(seq + 1 for seq in seqs)])

    def rotate(self) -> None:
        """Finish the open file if it has reached its size or age limit. Raises: OSError: as ``finish``."""
        current = self._current
        if current is not None and (not self.room or self._clock_s() - current.opened_s >= self._limits.file_age_s):
            self.finish()

    def finish(self) -> None:
        """Flush the open file to the disk, and rename it so that readers see it; delete it if it is empty.

        Without an open file, do nothing.

        Raises: OSError: that failed, and the file is still open.
        """
        current = self._current
        if current is None:
            return
        if current.size_bytes:
            os.fsync(current.descriptor)
            os.rename(current.path, self._finished_path(self._proxy_id, current.first, self._next))
        else:
            current.path.unlink()
        self._close()

    def take_vanished(self) -> Loss | None:
        """Check whether the open file was deleted or renamed by another process; return its rows as a loss if so.

        The next write then opens a new file. Return None if the file is in its place, or had no rows.
        """
        current = self._current
        if current is None or _is_at(current.descriptor, current.path):
            return None
        self._close()
        return Loss(self._proxy_id, "file-gone", current.first, self._next - 1) if current.size_bytes else None

    def make_room(self) -> list[Loss]:
        """Delete the oldest finished files, also of other processes, until the limit of the total size holds.

        The open file counts with the size limit of a file. Return the rows of the deleted files as losses.
        """
        found = sorted(self._list_finished(), key=lambda each: (each[0].st_mtime_ns, each[1].name))
        total_bytes = sum(stat.st_size for stat, _, _ in found) + self._limits.file_bytes
        losses = []
        for stat, path, loss in found:
            if total_bytes <= self._limits.total_bytes:
                break
            path.unlink(missing_ok=True)
            total_bytes -= stat.st_size
            if loss.count > 0:
                losses.append(loss)
        return losses

    def recover(self, lost_line: LostLine) -> list[str]:
        """Finish the files that other processes, which have ended, left open; return the names of those files.

        If the last row of a file is incomplete, a row by *lost_line* that reports its loss replaces it. A file
        without rows is deleted. Files of running processes, and files that cannot be finished, stay as they are.

        Raises: OSError: the folder cannot be read.
        """
        recovered = []
        for path in sorted(self._folder.iterdir()):
            match = _OPEN.fullmatch(path.name)
            if match is None or match[1] == self._proxy_id:
                continue
            with suppress(OSError):
                if self._finish_left(path, match, lost_line):
                    recovered.append(path.name)
        return recovered

    def _open(self) -> _Current:
        path = self._folder / f".{self._proxy_id}-{self._next:012}.open"
        descriptor = _open_own(path, os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
        except OSError:
            os.close(descriptor)
            raise
        self._current = _Current(descriptor, path, self._next, self._clock_s())
        return self._current

    def _close(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            os.close(current.descriptor)

    def _cut_off(self, current: _Current) -> None:
        """Truncate the file after the last whole row; if that fails, close it without finishing it."""
        try:
            os.ftruncate(current.descriptor, current.size_bytes)
        except OSError:
            self._close()

    def _finished_path(self, proxy_id: str, first: int, following: int) -> Path:
        return self._folder / f"{proxy_id}-{first:012}-{following:012}.jsonl"

    def _list_finished(self) -> list[tuple[os.stat_result, Path, Loss]]:
        found = []
        for path in self._folder.iterdir():
            match = _FINISHED.fullmatch(path.name)
            if match is None:
                continue
            with suppress(FileNotFoundError):  # another process also deletes files
                found.append((path.stat(), path, Loss(match[1], "max-size", int(match[2]), int(match[3]) - 1)))
        return found

    def _finish_left(self, path: Path, match: re.Match[str], lost_line: LostLine) -> bool:
        try:
            descriptor = _open_own(path)
        except FileNotFoundError:
            return False
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False  # its writer lives
            if not _is_at(descriptor, path):
                return False  # its writer has finished it just now
            found = os.fstat(descriptor)
            if not found.st_size:
                path.unlink()
                return True
            proxy_id, first = match[1], int(match[2])
            tail = _read_tail(descriptor, found.st_size, proxy_id, first)
            following = tail.following
            if tail.size_bytes < found.st_size:
                loss = Loss(proxy_id, "torn", following, following)
                following += 1
                line = lost_line(loss, found.st_mtime_ns // 1000, tail.cluster_id)
                os.ftruncate(descriptor, tail.size_bytes)
                os.write(descriptor, line)
            os.fsync(descriptor)
            os.rename(path, self._finished_path(proxy_id, first, following))
            return True
        finally:
            os.close(descriptor)


def _open_own(path: Path, flags: int = 0) -> int:
    """Open a regular file that has no other name, and return its descriptor.

    Raises: OSError: it cannot be opened, or it is none. A link in the folder could lead to a file of another owner,
        whose content would be cut off.
    """
    descriptor = os.open(path, flags | os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW, _MODE)
    found = os.fstat(descriptor)
    if S_ISREG(found.st_mode) and found.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EMLINK, "not a regular file with a single name", str(path))


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether *path* still leads to the open file of *descriptor*."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _read_tail(descriptor: int, size_bytes: int, proxy_id: str, first: int) -> _Tail:
    """Return the end of the last readable row in an open file of *size_bytes*; search from the file's end.

    If the file has no row of *proxy_id*, *first* is the ``seq`` of its next row.
    """
    window = _TAIL_BYTES
    while True:
        start = max(size_bytes - window, 0)
        end, row = _last_row(os.pread(descriptor, size_bytes - start, start), proxy_id)
        if row is not None:
            return _Tail(start + end, int(row["seq"]) + 1, row.get("cluster_id"))
        if not start:
            return _Tail(end, first, None)
        window *= 8


def _last_row(data: bytes, proxy_id: str) -> tuple[int, dict[str, Any] | None]:
    """Return the end of the last readable row, and the last row of *proxy_id*; None if there is no such row."""
    end = 0
    stop = len(data)
    while (newline := data.rfind(b"\n", 0, stop)) >= 0:
        stop = data.rfind(b"\n", 0, newline) + 1
        row = _parse_row(data[stop:newline])
        if row is not None:
            end = end or newline + 1
            if row.get("proxy_id") == proxy_id:
                return end, row
    return end, None


def _parse_row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("seq"), int) else None
