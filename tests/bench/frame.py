"""Alternation of ways, medians and spreads, ratios, and expectations, for any measurement."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import attrs

__all__ = [
    "Expectation",
    "Figure",
    "Table",
    "Way",
    "as_json",
    "figure_text",
    "in_turns",
    "measure",
    "measure_all",
    "percentile",
    "render",
]

T = TypeVar("T")


@attrs.frozen
class Way:
    """One of the ways to do the same thing."""

    name: str
    run: Callable[[], float]
    """Measures once."""


@attrs.frozen
class Figure:
    """One of several that are measured at once."""

    name: str
    unit: str


@attrs.frozen
class Expectation:
    """An expected limit of a figure, and whether it is met."""

    text: str
    is_met: bool


@attrs.frozen
class Table:
    """A case's figures: for each way the values, in the order in which they were measured."""

    case: str
    unit: str
    values: Mapping[str, Sequence[float]]
    """The values by way; the first way is the baseline."""
    expectations: Sequence[Expectation] = ()

    def median(self, way: str) -> float:
        return statistics.median(self.values[way])

    def ratio(self, way: str) -> float:
        """Return the ratio of *way*'s median to that of the first way; 0 if that is 0."""
        base = self.median(next(iter(self.values)))
        return self.median(way) / base if base else 0.0

    def expecting(self, *expectations: Expectation) -> "Table":
        return attrs.evolve(self, expectations=[*self.expectations, *expectations])


def in_turns(ways: Mapping[str, Callable[[], T]], *, rounds: int) -> Iterator[tuple[int, str, T]]:
    """Run every way *rounds* times; yield the round's number from 0, the way's name and the result.

    Each round begins with another way, so that slow changes of the machine, such as in the page cache, affect all
    ways alike.
    """
    names = list(ways)
    for number in range(rounds):
        shift = number % len(names)
        for name in [*names[shift:], *names[:shift]]:
            yield number, name, ways[name]()


def measure(
    case: str, unit: str, ways: Sequence[Way], *, rounds: int, show_progress: Callable[[str], None]
) -> Table:
    """Run every way *rounds* times, in turns."""
    values: dict[str, list[float]] = {way.name: [] for way in ways}
    for number, name, value in in_turns({way.name: way.run for way in ways}, rounds=rounds):
        show_progress(f"{case}, round {number + 1} of {rounds}: {name} {figure_text(value)} {unit}")
        values[name].append(value)
    return Table(case, unit, values)


def measure_all(
    case: str,
    ways: Mapping[str, Callable[[], Mapping[Figure, float]]],
    *,
    rounds: int,
    show_progress: Callable[[str], None],
) -> dict[Figure, Table]:
    """Measure ways that return several figures each; return a table for each figure."""
    values: dict[Figure, dict[str, list[float]]] = {}
    for number, name, found in in_turns(ways, rounds=rounds):
        reported = ", ".join(f"{figure.name} {figure_text(value)} {figure.unit}" for figure, value in found.items())
        show_progress(f"{case}, round {number + 1} of {rounds}: {name}: {reported}")
        for figure, value in found.items():
            values.setdefault(figure, {way: [] for way in ways})[name].append(value)
    return {
        figure: Table(f"{case}: {figure.name}", figure.unit, {way: each for way, each in by_way.items() if each})
        for figure, by_way in values.items()
    }


def percentile(values: Sequence[float], percent: float) -> float:
    """The least value that at least *percent* % of *values*, which need no order, do not exceed."""
    return sorted(values)[max(math.ceil(len(values) * percent / 100), 1) - 1]


_HEAD: Final = ("case", "way", "median", "spread", "ratio")


def render(tables: Iterable[Table]) -> str:
    """All tables as one of text, and the expectations below it."""
    tables = list(tables)
    rows = [_HEAD, *(row for table in tables for row in _rows(table))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    met = [f"{'met   ' if e.is_met else 'MISSED'}  {e.text}" for table in tables for e in table.expectations]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:], "", *met])


def _rows(table: Table) -> Iterator[tuple[str, ...]]:
    first = next(iter(table.values), None)
    for way, values in table.values.items():
        yield (
            table.case if way == first else "",
            way,
            f"{figure_text(table.median(way))} {table.unit}",
            f"{figure_text(min(values))} to {figure_text(max(values))}" if len(set(values)) > 1 else "none",
            "" if way == first else f"{table.ratio(way):.3g}",
        )


def figure_text(value: float) -> str:
    """With three digits that count, or all before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def as_json(tables: Iterable[Table]) -> list[dict[str, object]]:
    """Return the tables with every single value."""
    return [
        {
            "case": table.case,
            "unit": table.unit,
            "ways": {
                way: {"median": table.median(way), "ratio": table.ratio(way), "values": list(values)}
                for way, values in table.values.items()
            },
            "expectations": [attrs.asdict(expectation) for expectation in table.expectations],
        }
        for table in tables
    ]
