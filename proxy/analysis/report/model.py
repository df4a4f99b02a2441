"""A report as values, the source of the page, the JSON and the CSV files. All of it is bounded."""

from typing import Literal

import attrs

__all__ = [
    "Chart",
    "Figure",
    "Recommendation",
    "Report",
    "ReportColumn",
    "ReportScope",
    "ReportSection",
    "ReportTable",
    "Series",
    "Tone",
    "Unit",
    "Value",
]

Unit = Literal["text", "count", "bytes", "us", "usd", "share", "at_us", "ratio"]
"""The unit of a value: a share is 0..1, money is US dollars, ``at_us`` is microseconds since 1970 UTC."""
Tone = Literal["own", "crossed", "unknown", "client", "bad"]
"""The meaning of a colour, as on the status page: local or saved; another rack, or expensive; unknown; clients;
failing."""
Value = str | int | float | None


@attrs.frozen
class Figure:
    """A number with its title."""

    title: str
    value: float | None
    """None if it is unknown."""
    unit: Unit
    note: str = ""


@attrs.frozen
class ReportColumn:
    """One column of a table."""

    name: str
    """The name in JSON and CSV."""
    title: str
    unit: Unit = "text"


@attrs.frozen
class ReportTable:
    """The first rows of a ranking, and a row for all others; or all rows, if there are few."""

    name: str
    """The name of the CSV file."""
    title: str
    columns: tuple[ReportColumn, ...]
    rows: tuple[tuple[Value, ...], ...]
    has_rest: bool = False
    """Whether the last row is that of all others."""
    note: str = ""


@attrs.frozen
class Series:
    """Values by the labels of a chart."""

    name: str
    tone: Tone
    values: tuple[float | None, ...]


@attrs.frozen
class Chart:
    """A chart. Lines and stacks have consecutive labels; bars are separate; a matrix has a row for each series."""

    kind: Literal["lines", "stack", "bars", "matrix"]
    title: str
    told: str
    """A description for people who cannot see the chart."""
    unit: Unit
    labels: tuple[str, ...]
    series: tuple[Series, ...]


@attrs.frozen
class ReportSection:
    """The section about one question."""

    name: str
    title: str
    answer: str
    """The answer in one or two sentences."""
    honest: str = ""
    """The limits of the answer: unknown or modelled values."""
    figures: tuple[Figure, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[ReportTable, ...] = ()


@attrs.frozen
class Recommendation:
    """A recommendation."""

    title: str
    why: str
    brings: Figure
    basis: str
    """The basis of the figure."""


@attrs.frozen
class ReportScope:
    """The scope of the report: the rows that were read."""

    clusters: tuple[str, ...]
    """The names of the first few clusters."""
    cluster_count: int
    proxy_count: int
    from_us: int | None
    """The times of the first and the last row about a fetch; None if there is none."""
    until_us: int | None
    row_count: int
    bad_count: int
    lost_count: int
    """Rows that sidecars report as lost."""
    least_rate: float
    """The lowest sampling rate; 1 without sampling."""

    @property
    def days(self) -> float:
        """Return the length of the period in days; never less than a minute."""
        return max((self.until_us or 0) - (self.from_us or 0), 60_000_000) / 86_400_000_000

    def a_month(self, value: float) -> float:
        """Extrapolate *value* to 30 days."""
        return value / self.days * 30


@attrs.frozen
class Report:
    """The whole report."""

    about: ReportScope
    figures: tuple[Figure, ...]
    advice: tuple[Recommendation, ...]
    """The recommendations, the most important first."""
    sections: tuple[ReportSection, ...]
