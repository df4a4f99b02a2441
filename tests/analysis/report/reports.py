"""A report by hand: every kind of figure, chart and table, and names of clients that are out for no good."""

from typing import Final

from proxy.analysis.report.model import (
    Chart,
    Figure,
    Recommendation,
    Report,
    ReportColumn,
    ReportScope,
    ReportSection,
    ReportTable,
    Series,
)

__all__ = ["HOSTILE", "LONG", "report"]

HOSTILE: Final = "<img src=x onerror=alert(1)>\"'&"
LONG: Final = "a-client-with-a-very-long-name-" * 5
_DAY_US: Final = 86_400_000_000
_RACKS: Final = ("eu-central-1a", "eu-central-1b", "eu-central-1c")


def report() -> Report:
    """Return a report of two weeks."""
    about = ReportScope(
        ("kJ2b0XnVTn6b", HOSTILE), 4, 312, 20_000 * _DAY_US, 20_014 * _DAY_US, 48_211_034, 3, 120, 0.1
    )
    figures = (
        Figure("Bytes saved", 4.81e12, "bytes", "97 % of what clients' fetches came to"),
        Figure("Fetches spared", 1_200_000_000, "count", "1.4 billion of clients"),
        Figure("Crossed racks", None, "bytes", "no rack is known"),
        Figure("Break on Kafka 4", 7, "count", "of 41 clients"),
    )
    advice = (
        Recommendation(
            f"Upgrade {HOSTILE}", "It speaks Fetch v2.", Figure("of the traffic", 0.92, "share"), "41 of 45 GB."
        ),
        Recommendation(
            f"Move {LONG}", "Its readers are elsewhere.", Figure("a month", 412.5, "usd"), "4.8 TB in 14 days."
        ),
    )
    return Report(about, figures, advice, (_savings(), _zones()))


def _savings() -> ReportSection:
    days = tuple(f"Nov {day}" for day in range(1, 15))
    columns = (
        ReportColumn("client_id", "Client"),
        ReportColumn("saved_bytes", "Saved", "bytes"),
        ReportColumn("saved_share", "Of it all", "share"),
        ReportColumn("at_us", "Last seen", "at_us"),
        ReportColumn("why", "Why"),
    )
    rows = (
        (HOSTILE, 2e12, 0.97, 20_001 * _DAY_US, "=1+1"),
        (LONG, -4e11, None, 20_001 * _DAY_US, "it requests much, and receives little, " * 3),
        ("12 other clients", 1e10, 0.5, None, None),
    )
    charts = (
        Chart(
            "lines",
            "By day",
            "it falls",
            "bytes",
            days,
            (
                Series("directly", "client", tuple(1e12 - day * 3e10 for day in range(14))),
                Series("through Sidefetch", "own", tuple(2e10 for _ in days)),
            ),
        ),
        Chart("bars", "By client", "two", "bytes", (HOSTILE, LONG), (Series("saved", "own", (2e12, 4e11)),)),
    )
    table = ReportTable("savings_clients", "Clients", columns, rows, has_rest=True, note="Not all of them.")
    return ReportSection(
        "savings", "What sessions saved", "Most of it.", "Not all is known.", charts=charts, tables=(table,)
    )


def _zones() -> ReportSection:
    crossing = tuple(
        Series(rack, "crossed", tuple(1e12 if rack == reader else 3e11 * place for reader in _RACKS))
        for place, rack in enumerate(_RACKS)
    )
    waits = (Series("poll", "client", (5e9, 1e9)), Series("memory", "crossed", (1e9, 0.0)))
    charts = (
        Chart("matrix", "From rack to rack", "a third crosses", "bytes", _RACKS, crossing),
        Chart("bars", "Waits", "mostly for news", "us", ("billing", "search"), waits),
        Chart("stack", "By hour", "alike", "count", ("1", "2", "3"), (Series("n", "unknown", (1.0, 2.0, None)),)),
    )
    return ReportSection(
        "zones", "What crosses racks", "A third.", figures=(Figure("Crossed", 3.1e12, "bytes"),), charts=charts
    )
