"""The cost that a reading client causes the brokers (fetch requests and bytes), and its display as a table."""

import sys
from collections.abc import Mapping, Sequence
from typing import Final, TextIO

import attrs

__all__ = ["CostRow", "CostTable", "FetchCost", "compare_costs", "count", "rack_table", "size"]

_COLUMNS: Final = ("", "time", "fetches", "named", "to brokers", "from brokers", "records")
_FORMAT: Final = "  {:<18}{:>6}{:>10}{:>12}{:>13}{:>14}{:>10}"
_PIPED_S: Final = 3.0


@attrs.frozen
class FetchCost:
    """Counts of fetches, by which the demo compares reads: requests, partitions named in them, and bytes both ways.

    Bytes include the 4-byte size prefix of each frame. ``later - earlier`` is the cost in between.
    """

    fetches: int = 0
    named: int = 0
    """Partitions named in the requests."""
    to_brokers: int = 0
    """Bytes of requests."""
    from_brokers: int = 0
    """Bytes of responses, records included."""
    from_racks: Mapping[str, int] = attrs.field(factory=dict)
    """Bytes of records by the rack of the broker that sent them; empty if they are not counted."""

    @property
    def both_ways(self) -> int:
        return self.to_brokers + self.from_brokers

    def __sub__(self, before: "FetchCost") -> "FetchCost":
        return FetchCost(
            self.fetches - before.fetches,
            self.named - before.named,
            self.to_brokers - before.to_brokers,
            self.from_brokers - before.from_brokers,
            {rack: number - before.from_racks.get(rack, 0) for rack, number in self.from_racks.items()},
        )


@attrs.frozen
class CostRow:
    """A row of the table: the time, fetch cost and records so far of a read, directly or through Sidefetch."""

    way: str
    """The row's label: ``directly`` or ``through Sidefetch``."""
    seconds: float
    """The time of reading so far."""
    cost: FetchCost
    records: int
    """The number of records that the client has received."""


def count(number: float) -> str:
    return f"{number:,.0f}"


def size(number: float) -> str:
    """Format a *number* of bytes for people, in decimal units up to GB: ``812 B``, ``1.4 kB``, ``250 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            break
        number /= 1000
    return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"


class CostTable:
    """A table of fetch costs on a text stream, whose last row shows a read that is in progress.

    On a terminal the row is redrawn in place; otherwise a new line is written every 3 s.
    """

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._live = out.isatty()
        self._drawn = False
        self._shown_s: float | None = None

    def write_head(self) -> None:
        self._write(_FORMAT.format(*_COLUMNS))

    def write_row(self, row: CostRow, *, last: bool = False) -> None:
        if self._live:
            self._write(f"\x1b[1A\x1b[2K{_line(row)}" if self._drawn else _line(row))
            self._drawn = not last
            return
        if last or self._shown_s is None or row.seconds - self._shown_s >= _PIPED_S:
            self._shown_s = None if last else row.seconds
            self._write(_line(row))

    def write_text(self, text: str) -> None:
        """Write *text* below the last row, which stays as it is: the next ``write_row`` begins a new row."""
        self._drawn = False
        self._write(text)

    def _write(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


def _line(row: CostRow) -> str:
    cost = row.cost
    return _FORMAT.format(
        row.way,
        f"{row.seconds:.0f} s",
        count(cost.fetches),
        count(cost.named),
        size(cost.to_brokers),
        size(cost.from_brokers),
        count(row.records),
    )


def compare_costs(direct: CostRow, through: CostRow) -> str:
    """Return a sentence for users that compares the bytes of the *direct* read and the one *through* Sidefetch.

    A difference below 5 % counts as none.
    """
    bytes_direct, bytes_through = direct.cost.both_ways, max(1, through.cost.both_ways)
    ratio = bytes_direct / bytes_through
    facts = (
        f"{size(bytes_through)} instead of {size(bytes_direct)} to and from the brokers,"
        f" {count(through.cost.named)} partitions named instead of {count(direct.cost.named)}"
    )
    if ratio >= 1.05:
        return f"Shown: reading through Sidefetch costs {_times(ratio)} fewer bytes: {facts}."
    if ratio <= 0.95:
        return f"Shown: here reading through Sidefetch costs {_times(1 / ratio)} more bytes: {facts}."
    return f"Shown: here both ways cost about the same bytes: {facts}."


def _times(ratio: float) -> str:
    return f"{ratio:.0f} times" if ratio >= 10 else f"{ratio:.1f} times"


def rack_table(rows: Sequence[CostRow], own: str) -> str:
    """Return a text table with the bytes of records that came from brokers in each rack, a line for each of *rows*.

    The last column is the share of them, in percent, that came from rack *own*, the reader's rack.
    """
    racks = sorted({rack for row in rows for rack in row.cost.from_racks})
    form = "  {:<18}" + "{:>12}" * len(racks) + "{:>18}"
    lines = [form.format("", *(f"rack {rack}" for rack in racks), f"from rack {own}")]
    for row in rows:
        sizes = [row.cost.from_racks.get(rack, 0) for rack in racks]
        lines.append(form.format(row.way, *map(size, sizes), _percent(row.cost.from_racks.get(own, 0), sum(sizes))))
    return "\n".join(lines)


def _percent(part: int, whole: int) -> str:
    """Return a percentage as text, rounded down, so that 100 % means all; ``-`` if *whole* is 0."""
    return f"{100 * part // whole} %" if whole else "-"
