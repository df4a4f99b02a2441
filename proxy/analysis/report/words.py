"""Values as short texts for people, in a suitable unit, for cells, figures and sentences of the report."""

from datetime import UTC, datetime
from typing import Final

from proxy.analysis.report.model import Unit, Value

__all__ = ["in_words", "plural"]

NOT_KNOWN: Final = "–"
"""The text for an unknown value."""
_SIZES: Final = (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_TIMES: Final = (("days", 86_400e6), ("h", 3_600e6), ("min", 60e6), ("s", 1e6), ("ms", 1e3))
_CENT: Final = 0.01
_COUNTS: Final = (("trillion", 1e12), ("billion", 1e9), ("million", 1e6))


def in_words(value: Value, unit: Unit) -> str:
    """Return *value* as a short text for people, scaled to a suitable unit: 1,500,000 ``bytes`` is ``1.50 MB``.

    ``at_us`` becomes a UTC time (``2026-01-05 14:30``), a ``share`` of 0.25 becomes ``25 %``, and ``usd`` an amount
    of dollars. A string stays as it is; None or an empty string becomes ``–``.
    """
    if value is None or value == "":
        return NOT_KNOWN
    if isinstance(value, str):
        return value
    if unit == "at_us":
        return datetime.fromtimestamp(value / 1e6, UTC).strftime("%Y-%m-%d %H:%M")
    return f"−{_format_positive(-value, unit)}" if value < 0 else _format_positive(value, unit)


def plural(count: float, one: str, many: str = "") -> str:
    """Return a count with its noun in the right number: ``1 client``, ``2 clients``.

    Args: one: the singular of the noun.
          many: the plural; by default the singular with an s.
    """
    return f"{in_words(count, 'count')} {one if count == 1 else many or one + 's'}"


def _format_positive(value: float, unit: Unit) -> str:
    match unit:
        case "bytes":
            return _scaled(value, _SIZES, f"{value:.0f} B")
        case "us":
            return _scaled(value, _TIMES, f"{value:.0f} µs")
        case "usd":
            if 0 < value < _CENT:
                return "under $0.01"
            return f"${value:,.2f}" if value < 100 else f"${value:,.0f}"
        case "share":
            return f"{_digits(100 * value)} %"
        case "ratio":
            return f"{_digits(value)}"
        case _:
            return _scaled(value, _COUNTS, f"{value:,.0f}")


def _scaled(value: float, scales: tuple[tuple[str, float], ...], small: str) -> str:
    for name, size in scales:
        if value >= size:
            return f"{_digits(value / size)} {name}"
    return small


def _digits(value: float) -> str:
    """Return a number with at most three significant digits, but all digits before the decimal point."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
