"""The report's section on clients whose behaviour differs from their own past."""

import attrs
from pyspark.sql import functions as F

from proxy.analysis.answers.anomalies import LEAST_HOURS, anomalies
from proxy.analysis.frames import LedgerFrames
from proxy.analysis.report.model import ReportColumn, ReportSection, Value
from proxy.analysis.report.ranking import Ranking, Row, display_name, rank_rows, table_of
from proxy.analysis.report.words import plural

__all__ = ["Anomalies", "run_query", "section"]


@attrs.frozen
class Anomalies:
    """The query result for the section: runs of unusual hours of clients, the largest deviations first."""

    runs: Ranking
    """Rows of ``proxy.analysis.answers.anomalies``; the others are only counted."""


def run_query(ledger: LedgerFrames) -> Anomalies:
    """Run the Spark query for unusual hours of clients; keep the ten runs of hours with the largest deviations."""
    return Anomalies(rank_rows(anomalies(ledger).withColumn("far", F.abs("z")), "far", ()))


def section(found: Anomalies) -> ReportSection:
    """Return the report section: a table of the runs of unusual hours, with the client and an explanation."""
    count = found.runs.count
    return ReportSection(
        "anomalies",
        "Clients that are not as usual",
        f"{plural(count, 'time')} a client did what it does not do at such an hour."
        if count
        else "None, as far as there is a past to hold clients against.",
        "Usual is the median of the same hour of the week, or of all hours before, of which there must be"
        f" {LEAST_HOURS}: a ledger of less than a day has no results here. Hours without a row count as silent.",
        tables=(
            table_of(
                "anomalies",
                "Farthest from usual",
                found.runs,
                (
                    (ReportColumn("client_id", "Client"), lambda row: display_name(row["client_id"])),
                    (ReportColumn("explanation", "What it did"), lambda row: row["explanation"]),
                    (ReportColumn("since_us", "Since", "at_us"), _since_us),
                    (ReportColumn("hours", "Hours", "count"), lambda row: row["hours"]),
                    (ReportColumn("z", "Spreads from usual", "ratio"), lambda row: row["z"]),
                ),
                "runs of hours",
            ),
        ),
    )


def _since_us(row: Row) -> Value:
    return int(1_000_000 * row["since"].timestamp())
