"""The report's section on its own basis: the ledger rows that were read, are missing, or are not valid."""

from typing import Final

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from proxy.analysis.answers.coverage import coverage
from proxy.analysis.answers.parts import union_rows
from proxy.analysis.frames import LedgerFrames
from proxy.analysis.report.model import ReportColumn, ReportScope, ReportSection, ReportTable
from proxy.analysis.report.ranking import MOST, Ranking, Row, rank_rows, rows_of, table_of
from proxy.analysis.report.words import in_words, plural

__all__ = ["CoverageFigures", "run_query", "section"]

_MOST_CLUSTERS: Final = 3
_COMMON: Final = ("record", "cluster_id", "proxy_id", "first_at_us", "at_us", "weight")


@attrs.frozen
class CoverageFigures:
    """The query results for the section: the report's scope, and counts of valid, bad, lost and missing rows."""

    about: ReportScope
    by_record: tuple[Row, ...]
    """The number of rows of each record type: ``record``, ``rows``."""
    bad: Ranking
    """The number of bad lines by ``reason``, with the name of one file."""
    lost: tuple[Row, ...]
    """The number of rows that sidecars report as lost, by ``reason``."""
    missing_count: int
    """Rows that are missing without a report of their loss."""


def run_query(ledger: LedgerFrames, bad: DataFrame) -> CoverageFigures:
    """Run the Spark queries for the scope of the report, and for the counts of valid, bad, lost and missing rows.

    Args: bad: the lines that are not valid rows, with the columns ``row``, ``reason`` and ``file``.
    """
    frames = attrs.asdict(ledger, recurse=False).values()
    common = union_rows(frame.select(*_COMMON) for frame in frames)
    rows = rows_of(common.groupBy("record").agg(F.count("*").alias("rows")).orderBy(F.desc("rows")))
    of_fetches = F.col("record").isin("exchange", "fetch")
    (whole,) = rows_of(
        common.agg(
            F.count_distinct(F.when(F.col("record") != "topology", F.col("proxy_id"))).alias("proxies"),
            F.count_distinct("cluster_id").alias("clusters"),
            F.min(F.when(of_fetches, F.col("first_at_us"))).alias("from_us"),
            F.max(F.when(of_fetches, F.col("at_us"))).alias("until_us"),
            F.max("weight").alias("weight"),
        )
    )
    by_cluster = common.where("cluster_id is not null").groupBy("cluster_id").agg(F.count("*").alias("rows"))
    clusters = rows_of(by_cluster.orderBy(F.desc("rows")), _MOST_CLUSTERS)
    reasons = bad.groupBy("reason").agg(F.count("*").alias("rows"), F.max("file").alias("file"))
    found = rank_rows(reasons, "rows", ("rows",))
    lost = rows_of(ledger.lost.groupBy("reason").agg(F.sum("count").alias("rows")).orderBy(F.desc("rows")), MOST)
    (covered,) = rows_of(
        coverage(ledger).agg(F.sum("lost_rows").alias("lost"), F.sum("missing_rows").alias("missing"))
    )
    about = ReportScope(
        clusters=tuple(row["cluster_id"] for row in clusters),
        cluster_count=whole["clusters"],
        proxy_count=whole["proxies"],
        from_us=whole["from_us"],
        until_us=whole["until_us"],
        row_count=sum(row["rows"] for row in rows),
        bad_count=int(found.total("rows")),
        lost_count=covered["lost"] or 0,
        least_rate=1 / max(whole["weight"] or 1, 1),
    )
    return CoverageFigures(about, tuple(rows), found, tuple(lost), covered["missing"] or 0)


def section(found: CoverageFigures) -> ReportSection:
    """Return the last section of the report: the numbers of rows behind the other sections, and of missing rows."""
    about = found.about
    sentences = [
        f"{plural(about.row_count, 'row')} of {plural(about.proxy_count, 'process', 'processes')} of Sidefetch."
    ]
    if about.lost_count:
        sentences.append(f"Sidecars report the loss of {plural(about.lost_count, 'row')}.")
    if found.missing_count:
        sentences.append(f"{plural(found.missing_count, 'row')} are missing without a reported reason.")
    if about.bad_count:
        sentences.append(f"{plural(about.bad_count, 'row')} could not be read.")
    if len(sentences) == 1:
        sentences.append("No row is known to be missing.")
    kept = Ranking(found.by_record, len(found.by_record), None)
    gone = Ranking(found.lost, len(found.lost), None)
    return ReportSection(
        "read",
        "What this is made from",
        " ".join(sentences),
        "A row that came twice is counted once. What a process did before its first row here, or after its last,"
        " is not known."
        + (
            f" At least {in_words(about.least_rate, 'share')} of the fetches have a row."
            if about.least_rate < 1
            else ""
        ),
        tables=tuple(
            table
            for table in (
                _table("read_records", "Rows by record", "record", "Record", "records", kept),
                _table("read_lost", "Rows that sidecars have lost", "reason", "Why", "reasons", gone),
                _bad(found.bad),
            )
            if table.rows
        ),
    )


def _table(name: str, title: str, key: str, head: str, what: str, ranking: Ranking) -> ReportTable:
    return table_of(
        name,
        title,
        ranking,
        (
            (ReportColumn(key, head), lambda row: row[key]),
            (ReportColumn("rows", "Rows", "count"), lambda row: row["rows"]),
        ),
        what,
    )


def _bad(ranking: Ranking) -> ReportTable:
    return table_of(
        "read_bad",
        "Rows that could not be read",
        ranking,
        (
            (ReportColumn("reason", "Why"), lambda row: row["reason"]),
            (ReportColumn("rows", "Rows", "count"), lambda row: row["rows"]),
            (ReportColumn("file", "Such as in"), lambda row: row["file"]),
        ),
        "reasons",
    )
