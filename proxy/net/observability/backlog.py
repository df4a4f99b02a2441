"""What waits to be written to the ledger's files or its topic: bounded, so that a full disk costs rows."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import attrs

from proxy.telemetry.rows import Loss

__all__ = ["Backlog", "LedgerLine", "LostLine", "RowBatch", "RowSink"]

_FULL: Final = "full"


class LedgerLine(NamedTuple):
    """A row as it is written."""

    seq: int
    data: bytes
    """JSON, with a newline behind it."""


@attrs.frozen
class RowBatch:
    """What is to be written next: what was lost, and rows, oldest first."""

    losses: tuple[Loss, ...]
    lines: tuple[LedgerLine, ...]


LostLine = Callable[[Loss, int, str | None], bytes]
"""The row of a loss, told at a time in microseconds since 1970, in a cluster or the usual one, as a line."""


class Backlog:
    """Rows of one process, and what was lost of them; filled by one thread, taken from by another.

    What was taken counts no more: beyond the limit there is one batch. Whatever is lost is older than whatever is
    kept.
    """

    def __init__(self, limit_bytes: int, proxy_id: str) -> None:
        self._limit_bytes = limit_bytes
        self._proxy_id = proxy_id
        self._lock = threading.Lock()
        self._lines: deque[LedgerLine] = deque()
        self._losses: list[Loss] = []
        self.size_bytes = 0
        self.lost_rows = 0
        """Since the start."""

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._lines or self._losses)

    def put(self, line: LedgerLine) -> None:
        """The newest row; the oldest ones go where there is no room for it."""
        with self._lock:
            self._lines.append(line)
            self.size_bytes += len(line.data)
            self._make_room()

    def take(self, most_bytes: int) -> RowBatch:
        """The oldest rows, as many as fit, but one at least. Then it is written, given back, or lost."""
        with self._lock:
            losses, self._losses = tuple(self._losses), []
            lines: list[LedgerLine] = []
            size_bytes = 0
            while self._lines and (not lines or size_bytes + len(self._lines[0].data) <= most_bytes):
                lines.append(self._lines.popleft())
                size_bytes += len(lines[-1].data)
            self.size_bytes -= size_bytes
            return RowBatch(losses, tuple(lines))

    def give_back(self, batch: RowBatch) -> None:
        """It could not be written: it is still the oldest, and goes first if newer rows had to go meanwhile."""
        with self._lock:
            has_overflown = any(loss.reason == _FULL for loss in self._losses)
            for loss in batch.losses:
                self._tell(loss)
            for line in batch.lines if has_overflown else ():
                self._lose(line)
            if not has_overflown:
                self._lines.extendleft(reversed(batch.lines))
                self.size_bytes += sum(len(line.data) for line in batch.lines)
                self._make_room()

    def lose(self, loss: Loss) -> None:
        """Rows are gone that were taken, or that were written before."""
        with self._lock:
            self.lost_rows += loss.count
            self._tell(loss)

    def _make_room(self) -> None:
        while self.size_bytes > self._limit_bytes:
            line = self._lines.popleft()
            self.size_bytes -= len(line.data)
            self._lose(line)

    def _lose(self, line: LedgerLine) -> None:
        self.lost_rows += 1
        self._tell(Loss(self._proxy_id, _FULL, line.seq, line.seq))

    def _tell(self, loss: Loss) -> None:
        """Put *loss* to those that are not told yet; one that it touches becomes one with it."""
        for other in self._losses:
            if (loss.proxy_id, loss.reason) != (other.proxy_id, other.reason):
                continue
            if loss.first <= other.last + 1 and other.first <= loss.last + 1:
                self._losses.remove(other)
                self._tell(attrs.evolve(loss, first=min(loss.first, other.first), last=max(loss.last, other.last)))
                return
        self._losses.append(loss)


@attrs.frozen
class RowSink:
    """What those who write rows are given; they may use it from any thread."""

    backlog: Backlog
    lost_line: LostLine
    on_bug: Callable[[Exception], None]
    """Is told what should not have been raised; the rows stay where they are."""
