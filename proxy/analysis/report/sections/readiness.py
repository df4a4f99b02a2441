"""The report's section on clients that fail on Kafka 4, because it does not serve versions that they use."""

from typing import Final

import attrs
from pyspark.sql import functions as F

from proxy.analysis.answers.readiness import readiness
from proxy.analysis.frames import LedgerFrames
from proxy.analysis.report.model import Chart, Figure, ReportColumn, ReportSection, Series
from proxy.analysis.report.ranking import Ranking, Row, display_name, rank_rows, rows_of, share, table_of
from proxy.analysis.report.words import in_words, plural

__all__ = ["Readiness", "figures", "run_query", "section"]

_CLIENT: Final = ("client_id", "software")
_SUMS: Final = ("bytes", "connections")
_MOST_VERSIONS: Final = 12


@attrs.frozen
class Readiness:
    """The query result for the section: clients that fail on Kafka 4, the most traffic first, and totals of all."""

    breaking: Ranking
    """Clients with their traffic (``bytes``), ``connections``, and the API versions that Kafka 4 does not serve
    (``versions``)."""
    client_count: int
    """The number of all clients, those that do not fail included."""
    client_bytes: int
    """The traffic of all clients: requests, and responses to fetches."""

    @property
    def breaking_bytes(self) -> int:
        return int(self.breaking.total("bytes"))


def run_query(ledger: LedgerFrames) -> Readiness:
    """Run the Spark query for clients that fail on Kafka 4; keep the ten with the most traffic, and sums of all.

    A client is a client id and software here, in all clusters together.
    """
    spoken = readiness(ledger).persist()
    try:
        of_cluster = spoken.groupBy("cluster_id", *_CLIENT, "client_breaks").agg(
            F.max("client_bytes").alias("bytes"),
            F.max("connections").alias("connections"),
            F.collect_set(F.when(F.col("breaks"), F.concat("api", F.lit(" v"), "version"))).alias("versions"),
        )
        clients = of_cluster.groupBy(*_CLIENT).agg(
            F.max("client_breaks").alias("client_breaks"),
            F.sum("bytes").alias("bytes"),
            F.sum("connections").alias("connections"),
            F.slice(F.array_sort(F.array_distinct(F.flatten(F.collect_list("versions")))), 1, _MOST_VERSIONS).alias(
                "versions"
            ),
        )
        breaking = rank_rows(clients.where("client_breaks"), "bytes", _SUMS)
        (whole,) = rows_of(clients.agg(F.count("*").alias("clients"), F.sum("bytes").alias("bytes")))
    finally:
        spoken.unpersist()
    return Readiness(breaking, whole["clients"], whole["bytes"] or 0)


def figures(found: Readiness) -> tuple[Figure, ...]:
    """Return the main figure for the top of the report: the number of clients that fail on Kafka 4."""
    return (Figure("Clients that Kafka 4 breaks", found.breaking.count, "count", f"of {found.client_count} seen"),)


def section(found: Readiness) -> ReportSection:
    """Return the report section on clients that must be upgraded before the brokers, or stay behind Sidefetch."""
    count, of_all = found.breaking.count, share(found.breaking_bytes, found.client_bytes)
    answer = f"None of the {plural(found.client_count, 'client')} that were seen: all speak what Kafka 4 serves."
    if count:
        speaks, they_are, their = ("speaks", "it is", "its") if count == 1 else ("speak", "they are", "their")
        answer = (
            f"{plural(count, 'client')} of {found.client_count} {speaks} what Kafka 4 does not serve:"
            f" {in_words(of_all, 'share')} of the traffic, by requests and the answers to fetches. Through"
            f" Sidefetch {they_are} served; directly {their} connections are closed without a word."
        )
    return ReportSection(
        "readiness",
        "Who breaks on Kafka 4",
        answer,
        "Only clients of a Sidefetch are included, by the versions that they used, not by those that they support.",
        charts=tuple(_chart(found)),
        tables=(
            table_of(
                "readiness_clients",
                "Clients that break, by traffic",
                found.breaking,
                (
                    (ReportColumn("client_id", "Client"), lambda row: display_name(row["client_id"])),
                    (ReportColumn("software", "Software"), lambda row: row["software"]),
                    (
                        ReportColumn("versions", "Speaks, and Kafka 4 does not"),
                        lambda row: ", ".join(row["versions"]),
                    ),
                    (ReportColumn("connections", "Connections", "count"), lambda row: row["connections"]),
                    (ReportColumn("bytes", "Traffic", "bytes"), lambda row: row["bytes"]),
                ),
                "clients",
            ),
        ),
    )


def _chart(found: Readiness) -> list[Chart]:
    rows = found.breaking.rows[:6]
    fine = found.client_bytes - found.breaking_bytes
    if not rows:
        return []
    others = found.breaking_bytes - sum(row["bytes"] for row in rows)
    bars: list[tuple[str, float, bool]] = [(_who(row), row["bytes"], True) for row in rows]
    bars += [("others that break", others, True)] if others else []
    bars += [("all that do not", fine, False)]
    series = (
        Series("breaks on Kafka 4", "bad", tuple(value if breaks else 0 for _, value, breaks in bars)),
        Series("does not", "client", tuple(0 if breaks else value for _, value, breaks in bars)),
    )
    summary = "; ".join(f"{name}: {in_words(value, 'bytes')}" for name, value, _ in bars)
    return [Chart("bars", "Traffic of clients", summary, "bytes", tuple(name for name, _, _ in bars), series)]


def _who(row: Row) -> str:
    return (
        f"{display_name(row['client_id'])} ({row['software']})"
        if row["software"]
        else display_name(row["client_id"])
    )
