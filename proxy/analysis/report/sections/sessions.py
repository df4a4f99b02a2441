"""The report's section on fetch sessions, and on clients that waste the brokers' session slots."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final

import attrs
from pyspark.sql import functions as F

from proxy.analysis.answers.sessions import sessions
from proxy.analysis.frames import LedgerFrames
from proxy.analysis.report.model import ReportColumn, ReportSection, Value
from proxy.analysis.report.ranking import Ranking, Row, display_name, rank_rows, rows_of, table_of
from proxy.analysis.report.words import in_words, plural

__all__ = ["Sessions", "run_query", "section"]

_COUNTS: Final = ("created", "refused", "evicted", "reset", "closed", "short_lives")
_SECOND_US: Final = 1_000_000
_SIDES: Final = {"upstream": "Sidefetch's with brokers", "client": "clients' with Sidefetch"}
_MOST_REASONS: Final = 12


@attrs.frozen
class Sessions:
    """The query results for the section: fetch sessions by side, and clients with many short sessions."""

    by_side: tuple[Row, ...]
    """Rows of ``proxy.analysis.answers.sessions``, one for Sidefetch's sessions with brokers, one for clients'
    sessions with Sidefetch."""
    thrashing: Ranking
    """Clients with many short sessions at brokers, the most sessions first."""

    def of_brokers(self, name: str) -> float:
        """Return the column *name*, a count or ratio, of Sidefetch's sessions with brokers; 0 if there are none."""
        return next((row[name] or 0 for row in self.by_side if row["side"] == "upstream"), 0)


def run_query(ledger: LedgerFrames) -> Sessions:
    """Run the Spark queries for fetch sessions of both sides, and for the ten clients with the most short sessions.

    Such a client has at least ten sessions at brokers, and at least half of them lived for less than 120 s.
    """
    by_client = sessions(ledger, ["client_id"]).where(F.col("is_thrashing") & (F.col("side") == "upstream"))
    return Sessions(tuple(rows_of(sessions(ledger, []))), rank_rows(by_client, "created", _COUNTS))


def section(found: Sessions) -> ReportSection:
    """Return the report section on fetch sessions: counts and reasons of events, and clients that waste slots."""
    by_side = sorted(found.by_side, key=lambda row: str(row["side"]), reverse=True)
    reasons = [
        {"side": row["side"], **reason}
        for row in by_side
        for reason in sorted(row["reasons"] or [], key=lambda each: -each["sessions"])[:_MOST_REASONS]
    ]
    count = found.thrashing.count
    waste = f" {plural(count, 'client')} waste slots: their sessions are many, and short." if count else ""
    return ReportSection(
        "sessions",
        "Fetch sessions",
        f"{in_words(found.of_brokers('hit_ratio') or None, 'share')} of the fetches at brokers were within one."
        f" {plural(found.of_brokers('evicted'), 'session')} lost their slot to others,"
        f" {in_words(found.of_brokers('refused'), 'count')} were refused one.{waste}",
        "Followers and clients without a Sidefetch take slots, too, and are not included. Lifetimes are known only"
        " if both ends are.",
        tables=(
            table_of("sessions_sides", "Sessions", _all(by_side), _columns(), "sides"),
            table_of(
                "sessions_reasons",
                "What became of them, and why",
                _all(reasons),
                (
                    (ReportColumn("side", "Whose"), lambda row: _SIDES.get(row["side"], row["side"])),
                    (ReportColumn("event", "What"), lambda row: row["event"]),
                    (ReportColumn("reason", "Why"), lambda row: row["reason"]),
                    (ReportColumn("sessions", "Sessions", "count"), lambda row: row["sessions"]),
                ),
                "reasons",
            ),
            table_of(
                "sessions_thrashing",
                "Clients that waste slots",
                found.thrashing,
                (
                    (ReportColumn("client_id", "Client"), lambda row: display_name(row["client_id"])),
                    (ReportColumn("created", "Created", "count"), lambda row: row["created"]),
                    (ReportColumn("short_lives", "Shorter than 2 min", "count"), lambda row: row["short_lives"]),
                    (ReportColumn("median_life_us", "Median life", "us"), lambda row: _us(row["median_life_s"])),
                ),
                "clients",
            ),
        ),
    )


def _all(rows: Sequence[Row]) -> Ranking:
    return Ranking(tuple(rows), len(rows), None)


def _columns() -> tuple[tuple[ReportColumn, Callable[[Row], Value]], ...]:
    counts = {
        "created": "Created",
        "refused": "Refused",
        "evicted": "Evicted",
        "reset": "Reset",
        "closed": "Closed",
    }
    return (
        (ReportColumn("side", "Whose"), lambda row: _SIDES.get(row["side"], row["side"])),
        *((ReportColumn(name, title, "count"), itemgetter(name)) for name, title in counts.items()),
        (ReportColumn("median_life_us", "Median life", "us"), lambda row: _us(row["median_life_s"])),
        (ReportColumn("hit_ratio", "Fetches within one", "share"), lambda row: row["hit_ratio"]),
    )


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * _SECOND_US
