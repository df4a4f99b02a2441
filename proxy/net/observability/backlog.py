"""The queue of ledger rows (JSON about fetches and connections) that wait to be written to a file or a topic.

It is bounded, so that a full disk costs only rows.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import attrs

from proxy.telemetry.rows import Loss

__all__ = ["Backlog", "LedgerLine", "LostLine", "RowBatch", "RowSink"]

_FULL: Final = "full"


class LedgerLine(NamedTuple):
    """One ledger row, encoded as a line of JSON, with its sequence number."""

    seq: int
    data: bytes
    """The row as JSON with a newline."""


@attrs.frozen
class RowBatch:
    """Rows that ``Backlog.take`` has removed for writing, oldest first, and the losses to write before them."""

    losses: tuple[Loss, ...]
    lines: tuple[LedgerLine, ...]


LostLine = Callable[[Loss, int, str | None], bytes]
"""Encodes a loss as a line, given its time in microseconds since 1970 and the cluster id; None: the current one."""


class Backlog:
    """The queue of unwritten ledger rows for the files or the topic; when it is full, the oldest rows are dropped.

    Dropped rows are recorded as losses (``Loss``: a range of sequence numbers and a reason), which are written like
    rows. One thread calls ``put``; another one calls ``take`` and writes. A batch that was taken does not count
    towards the limit, so memory exceeds the limit by at most one batch.
    """

    def __init__(self, limit_bytes: int, proxy_id: str) -> None:
        self._limit_bytes = limit_bytes
        self._proxy_id = proxy_id
        self._lock = threading.Lock()
        self._lines: deque[LedgerLine] = deque()
        self._losses: list[Loss] = []
        self.size_bytes = 0
        """The size of the queued rows."""
        self.lost_rows = 0
        """The number of rows lost since the start."""

    def __bool__(self) -> bool:
        """Return whether there are rows or losses to write."""
        return bool(self._lines or self._losses)

    def put(self, line: LedgerLine) -> None:
        """Append *line*, the newest row; if the queue exceeds its limit, drop the oldest rows as losses."""
        with self._lock:
            self._lines.append(line)
            self.size_bytes += len(line.data)
            self._make_room()

    def take(self, most_bytes: int) -> RowBatch:
        """Remove and return all recorded losses, and the oldest rows that fit into *most_bytes*.

        The first row is returned even if it is larger; an empty queue yields no rows. The caller must write the
        batch, or else return it by ``give_back``, or report its rows by ``lose``.
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
        """Put *batch*, which could not be written, back at the head of the queue; its rows are the oldest.

        If the queue has dropped rows to keep its limit since ``take``, the rows of *batch* are dropped, too: the
        oldest rows go first.
        """
        with self._lock:
            has_overflown = any(loss.reason == _FULL for loss in self._losses)
            for loss in batch.losses:
                self._add_loss(loss)
            for line in batch.lines if has_overflown else ():
                self._drop_line(line)
            if not has_overflown:
                self._lines.extendleft(reversed(batch.lines))
                self.size_bytes += sum(len(line.data) for line in batch.lines)
                self._make_room()

    def lose(self, loss: Loss) -> None:
        """Count and record *loss*: rows that were taken or written earlier, and that nobody can read any more."""
        with self._lock:
            self.lost_rows += loss.count
            self._add_loss(loss)

    def _make_room(self) -> None:
        while self.size_bytes > self._limit_bytes:
            line = self._lines.popleft()
            self.size_bytes -= len(line.data)
            self._drop_line(line)

    def _drop_line(self, line: LedgerLine) -> None:
        self.lost_rows += 1
        self._add_loss(Loss(self._proxy_id, _FULL, line.seq, line.seq))

    def _add_loss(self, loss: Loss) -> None:
        """Add *loss* to the losses to write; merge it with adjacent ones of the same process and reason."""
        for other in self._losses:
            if (loss.proxy_id, loss.reason) != (other.proxy_id, other.reason):
                continue
            if loss.first <= other.last + 1 and other.first <= loss.last + 1:
                self._losses.remove(other)
                self._add_loss(
                    attrs.evolve(loss, first=min(loss.first, other.first), last=max(loss.last, other.last))
                )
                return
        self._losses.append(loss)


@attrs.frozen
class RowSink:
    """The objects that a ledger writer uses from any thread: backlog, encoder for losses, error callback."""

    backlog: Backlog
    lost_line: LostLine
    on_bug: Callable[[Exception], None]
    """Called with an unexpected exception; the rows stay in the backlog."""
