"""A report as values: what the page, the JSON and the CSV files are made from. All of it is bounded."""

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
"""Of a value: a share is 0..1, money is US dollars, ``at_us`` is microseconds since 1970 UTC."""
Tone = Literal["own", "crossed", "unknown", "client", "bad"]
"""What a colour stands for, as on the status page: near or saved; another rack, or dear; not known; clients;
broken."""
Value = str | int | float | None


@attrs.frozen
class Figure:
    """One number, and of what it is."""

    title: str
    value: float | None
    """None where it is not known."""
    unit: Unit
    note: str = ""


@attrs.frozen
class ReportColumn:
    """One column of a table."""

    name: str
    """In JSON and CSV."""
    title: str
    unit: Unit = "text"


@attrs.frozen
class ReportTable:
    """The first rows of a ranking, and one for all others; or all rows, where they are few by themselves."""

    name: str
    """Of the CSV file."""
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
    """Lines and stacks have labels that follow each other; bars are apart; a matrix has a row a series."""

    kind: Literal["lines", "stack", "bars", "matrix"]
    title: str
    told: str
    """What there is to see, for those who do not."""
    unit: Unit
    labels: tuple[str, ...]
    series: tuple[Series, ...]


@attrs.frozen
class ReportSection:
    """One answer."""

    name: str
    title: str
    answer: str
    """In a sentence or two."""
    honest: str = ""
    """What it does not know, or has modelled."""
    figures: tuple[Figure, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[ReportTable, ...] = ()


@attrs.frozen
class Recommendation:
    """One thing to do."""

    title: str
    why: str
    brings: Figure
    basis: str
    """What the figure is reckoned from."""


@attrs.frozen
class ReportScope:
    """What was read."""

    clusters: tuple[str, ...]
    """The first few."""
    cluster_count: int
    proxy_count: int
    from_us: int | None
    """Of the first and the last row that tell of a fetch; None where there is none."""
    until_us: int | None
    row_count: int
    bad_count: int
    lost_count: int
    """Rows that sidecars say they have lost."""
    least_rate: float
    """The lowest sampling rate; 1 where nothing was left out."""

    @property
    def days(self) -> float:
        """How long it is; never less than a minute."""
        return max((self.until_us or 0) - (self.from_us or 0), 60_000_000) / 86_400_000_000

    def a_month(self, value: float) -> float:
        """What *value* comes to in 30 days that go on like these."""
        return value / self.days * 30


@attrs.frozen
class Report:
    """All of it."""

    about: ReportScope
    figures: tuple[Figure, ...]
    advice: tuple[Recommendation, ...]
    """What to do first comes first."""
    sections: tuple[ReportSection, ...]
