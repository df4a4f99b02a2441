"""The report's section on the time that client fetches with records waited, by cause."""

from operator import itemgetter
from typing import Final

import attrs
from pyspark.sql import functions as F

from proxy.analysis.answers.waiting import CAUSES, waiting
from proxy.analysis.frames import LedgerFrames
from proxy.analysis.report.model import Chart, ReportColumn, ReportSection, Series, Tone
from proxy.analysis.report.ranking import Ranking, Row, display_name, rank_rows, rows_of, share, table_of
from proxy.analysis.report.words import in_words

__all__ = ["DELAYS", "Waiting", "run_query", "section"]

DELAYS: Final = tuple(cause for cause in CAUSES if cause not in ("total", "poll"))
"""The causes of delays; waiting for new records is none."""
_WORDS: Final = {
    "total": "all of it",
    "poll": "news",
    "broker": "a broker",
    "budget": "memory",
    "convert": "a conversion",
    "throttle": "the end of a throttling",
    "write": "the client, to read its answer",
}
_TONES: Final[dict[str, Tone]] = {"broker": "client", "budget": "bad", "convert": "crossed", "throttle": "unknown"}
_COARSE: Final = 200
_SECOND_US: Final = 1_000_000


@attrs.frozen
class Waiting:
    """The query results for the section: waiting times of client fetches that returned records."""

    by_cause: tuple[Row, ...]
    """Rows of ``proxy.analysis.answers.waiting``, one for each cause and one for the total."""
    by_client: Ranking
    """Seconds of each cause in ``DELAYS``, and their sum ``delay_s``, by client, the longest delays first."""

    def delay_s(self, cause: str) -> float:
        return next((float(row["total_s"]) for row in self.by_cause if row["cause"] == cause), 0.0)

    @property
    def all_delay_s(self) -> float:
        return sum(self.delay_s(cause) for cause in DELAYS)


def run_query(ledger: LedgerFrames) -> Waiting:
    """Run the Spark queries for waiting times: by cause, and of the ten clients with the longest total delay.

    A delay is any wait except that for new records.
    """
    by_cause = waiting(ledger, []).where("with_records").drop("sketch")
    each = waiting(ledger, ["client_id"], sketch_k=_COARSE).where("with_records").drop("sketch")
    by_client = each.groupBy("client_id").agg(
        F.max("exchanges").alias("exchanges"),
        F.sum(F.when(F.col("cause").isin(*DELAYS), F.col("total_s"))).alias("delay_s"),
        *(F.sum(F.when(F.col("cause") == cause, F.col("total_s"))).alias(cause) for cause in DELAYS),
    )
    return Waiting(tuple(rows_of(by_cause)), rank_rows(by_client, "delay_s", ("exchanges", "delay_s", *DELAYS)))


def section(found: Waiting) -> ReportSection:
    """Return the report section on waiting times: percentiles by cause, and the clients with the longest delays.

    It is about fetches that returned records: others are long polls, which are meant to wait.
    """
    by_cause = sorted(found.by_cause, key=lambda row: CAUSES.index(row["cause"]))
    exchanges = max((row["exchanges"] for row in by_cause), default=0)
    if not exchanges:
        return ReportSection("waiting", "What clients wait for", "No fetch has brought records.")
    shares = [(cause, share(found.delay_s(cause), found.all_delay_s) or 0) for cause in DELAYS]
    most, of_all = max(shares, key=lambda pair: pair[1])
    percentiles = {"p50_us": "p50", "p90_us": "p90", "p99_us": "p99", "p999_us": "p99.9"}
    is_one_rate = all(row["is_one_rate"] for row in by_cause)
    return ReportSection(
        "waiting",
        "What clients wait for",
        f"Of what fetches that brought records have waited for, news aside, {in_words(of_all, 'share')} is"
        f" {_WORDS[most]}.",
        "Percentiles are of all fetches that brought records, those that did not wait for it included; they are"
        " from sketches, of a rank within 0.04 % of theirs."
        + ("" if is_one_rate else " Sampled at several rates: processes with higher rates count for more."),
        charts=tuple(_chart(found)),
        tables=(
            table_of(
                "waiting_causes",
                "Of fetches with records",
                Ranking(tuple(by_cause), len(by_cause), None),
                (
                    (ReportColumn("cause", "Waiting for"), lambda row: _WORDS[row["cause"]]),
                    *((ReportColumn(name, title, "us"), itemgetter(name)) for name, title in percentiles.items()),
                    (ReportColumn("total_us", "Together", "us"), lambda row: row["total_s"] * _SECOND_US),
                ),
                "causes",
            ),
            table_of(
                "waiting_clients",
                "Clients by delay",
                found.by_client,
                (
                    (ReportColumn("client_id", "Client"), lambda row: display_name(row["client_id"])),
                    (ReportColumn("exchanges", "Fetches with records", "count"), itemgetter("exchanges")),
                    (ReportColumn("delay_us", "Delay", "us"), lambda row: row["delay_s"] * _SECOND_US),
                    (ReportColumn("mean_us", "Of each", "us"), _mean_us),
                ),
                "clients",
            ),
        ),
    )


def _mean_us(row: Row) -> float | None:
    return share(row["delay_s"] * _SECOND_US, row["exchanges"])


def _chart(found: Waiting) -> list[Chart]:
    rows = [row for row in found.by_client.rows[:6] if row["delay_s"]]
    if not rows:
        return []
    series = tuple(
        Series(_WORDS[cause], _TONES.get(cause, "own"), tuple(row[cause] * _SECOND_US for row in rows))
        for cause in DELAYS
    )
    summary = "; ".join(
        f"{display_name(row['client_id'])}: {in_words(row['delay_s'] * _SECOND_US, 'us')}" for row in rows
    )
    names = tuple(display_name(row["client_id"]) for row in rows)
    return [Chart("bars", "Delay of clients, by what they waited for", summary, "us", names, series)]
