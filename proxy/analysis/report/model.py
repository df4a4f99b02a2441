"""The report as values: the source of the HTML page, of the JSON and of the CSV files.

The size of all parts is bounded: it does not grow with the fleet.
"""

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
    """A number with its title and unit, such as the bytes saved or the benefit of a recommendation."""

    title: str
    value: float | None
    """None if it is unknown."""
    unit: Unit
    note: str = ""
    """A short explanation next to the number; empty for none."""


@attrs.frozen
class ReportColumn:
    """The definition of one column of a table: its names, and the unit of its values."""

    name: str
    """The name in JSON and CSV."""
    title: str
    """The heading on the page."""
    unit: Unit = "text"


@attrs.frozen
class ReportTable:
    """A table of a report: the first rows of a ranking and, if there are more, one row that sums up the others."""

    name: str
    """The name in JSON, and of the CSV file."""
    title: str
    columns: tuple[ReportColumn, ...]
    rows: tuple[tuple[Value, ...], ...]
    """The cells of each row, in the order of the columns; None for an unknown value."""
    has_rest: bool = False
    """Whether the last row sums up the rows that are not shown."""
    note: str = ""
    """A remark below the table; empty for none."""


@attrs.frozen
class Series:
    """A series of a chart: a name, a colour, and one value for each label of the chart."""

    name: str
    tone: Tone
    values: tuple[float | None, ...]
    """One value for each label; None for an unknown value."""


@attrs.frozen
class Chart:
    """A chart of a report section: labels, and one or more series with a value for each label."""

    kind: Literal["lines", "stack", "bars", "matrix"]
    """``lines`` and ``stack``: the labels are consecutive, such as days. ``bars``: a bar for each label, with the
    series stacked. ``matrix``: a row for each series, and a column for each label."""
    title: str
    alt_text: str
    """A description for people who cannot see the chart."""
    unit: Unit
    """The unit of the values."""
    labels: tuple[str, ...]
    series: tuple[Series, ...]


@attrs.frozen
class ReportSection:
    """A section of the report, which answers one question with texts, figures, charts and tables."""

    name: str
    """The identifier in JSON and in links of the page."""
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
    """A recommendation to the operator of the fleet, with its reason and a figure for its benefit."""

    title: str
    """The recommended action."""
    why: str
    """The reason."""
    brings: Figure
    """The estimated benefit, or the size of the problem."""
    basis: str
    """The numbers and assumptions behind the figure."""


@attrs.frozen
class ReportScope:
    """The scope of a report: the period, clusters and processes of the ledger rows that were read."""

    clusters: tuple[str, ...]
    """The names of the first few clusters."""
    cluster_count: int
    """The number of all clusters."""
    proxy_count: int
    """The number of sidecar processes; a restart begins a new one."""
    from_us: int | None
    """Time of the first row about a fetch, in microseconds since 1970; None if there is none."""
    until_us: int | None
    """Time of the last row about a fetch, in microseconds since 1970; None if there is none."""
    row_count: int
    """The number of valid rows."""
    bad_count: int
    """The number of lines that are not valid rows."""
    lost_count: int
    """The number of rows that sidecars report as lost."""
    least_rate: float
    """The lowest sampling rate; 1 without sampling."""

    @property
    def days(self) -> float:
        """The length of the period in days; at least a minute's, so that it is never 0."""
        return max((self.until_us or 0) - (self.from_us or 0), 60_000_000) / 86_400_000_000

    def a_month(self, value: float) -> float:
        """Extrapolate *value*, a sum over the period of the report, to 30 days."""
        return value / self.days * 30


@attrs.frozen
class Report:
    """A report on a fleet's ledgers: its scope, main figures, recommendations and sections."""

    about: ReportScope
    figures: tuple[Figure, ...]
    """The main figures, at the top of the page."""
    advice: tuple[Recommendation, ...]
    """The recommendations, the most important first."""
    sections: tuple[ReportSection, ...]
