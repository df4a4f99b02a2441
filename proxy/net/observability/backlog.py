"""Rows that wait to be written to the ledger's files or its topic: bounded, so that a full disk costs only rows."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import attrs

from proxy.telemetry.rows import Loss

__all__ = ["Backlog", "LedgerLine", "LostLine", "RowBatch", "RowSink"]

_FULL: Final = "full"


class LedgerLine(NamedTuple):
    """One encoded row with its sequence number."""

    seq: int
    data: bytes
    """The row as JSON with a newline."""


@attrs.frozen
class RowBatch:
    """The next rows to write, oldest first, and the losses to report before them."""

    losses: tuple[Loss, ...]
    lines: tuple[LedgerLine, ...]


LostLine = Callable[[Loss, int, str | None], bytes]
"""Encodes a loss as a line, given the time in microseconds since 1970 and the cluster id; None: the current one."""


class Backlog:
    """The unwritten rows of one process and its lost rows; one thread fills it, another one empties it.

    A batch that was taken does not count towards the limit, so memory exceeds the limit by at most one batch. Lost
    rows are always older than kept rows.
    """

    def __init__(self, limit_bytes: int, proxy_id: str) -> None:
        self._limit_bytes = limit_bytes
        self._proxy_id = proxy_id
        self._lock = threading.Lock()
        self._lines: deque[LedgerLine] = deque()
        self._losses: list[Loss] = []
        self.size_bytes = 0
        self.lost_rows = 0
        """The number of rows lost since the start."""

    def __bool__(self) -> bool:
        """Return whether there is anything to write."""
        return bool(self._lines or self._losses)

    def put(self, line: LedgerLine) -> None:
        """Add the newest row; if the limit is exceeded, the oldest rows are lost."""
        with self._lock:
            self._lines.append(line)
            self.size_bytes += len(line.data)
            self._make_room()

    def take(self, most_bytes: int) -> RowBatch:
        """Remove and return the oldest rows, at least one, with at most *most_bytes* if there are several.

        The caller then writes the batch, gives it back, or reports it as lost.
        """
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
        """Put back a batch that could not be written; its rows are the oldest ones again.

        If rows were lost to the limit meanwhile, the batch is lost as well, since the oldest rows go first.
        """
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
        """Report the loss of rows that were taken, or written earlier."""
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
        """Add *loss* to the unreported losses; merge it with adjacent ones of the same process and reason."""
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
    """The interface for a writer of rows, for use from any thread."""

    backlog: Backlog
    lost_line: LostLine
    on_bug: Callable[[Exception], None]
    """Called with an unexpected exception; the rows stay in the backlog."""
