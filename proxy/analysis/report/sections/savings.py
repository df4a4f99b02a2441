"""The report's section on the bytes and requests that Sidefetch saves by sessions and shared long polls."""

from typing import Final

import attrs

from proxy.analysis.answers.savings import savings
from proxy.analysis.frames import LedgerFrames
from proxy.analysis.report.model import Chart, Figure, ReportColumn, ReportSection, ReportTable, Series
from proxy.analysis.report.ranking import Ranking, Row, display_name, rank_rows, rows_of, share, table_of
from proxy.analysis.report.words import in_words

__all__ = ["Savings", "figures", "run_query", "section"]

_SUMS: Final = (
    "exchanges",
    "fetches",
    "direct_bytes",
    "actual_bytes",
    "saved_bytes",
    "record_bytes",
    "delivered_bytes",
    "saved_requests",
)


@attrs.frozen
class Savings:
    """The query results for the section: savings by day, by client and by topic, in all clusters together."""

    by_day: tuple[Row, ...]
    """Rows of ``proxy.analysis.answers.savings``, in the order of days."""
    by_client: Ranking
    """The clients with the most bytes saved."""
    by_topic: Ranking
    """The topics with the most bytes saved."""

    @property
    def total(self) -> Row:
        """The sums over all days, by column, and whether any day is modelled or sampled."""
        sums = {name: sum(row[name] for row in self.by_day) for name in (*_SUMS, "direct_looks", "saved_looks")}
        flags = {name: any(row[name] for row in self.by_day) for name in ("is_modelled", "is_sampled")}
        return {**sums, **flags}


def run_query(ledger: LedgerFrames) -> Savings:
    """Run the Spark queries for savings: all days, and the ten clients and ten topics with the most bytes saved."""
    by_day = sorted(rows_of(savings(ledger, ["day"])), key=lambda row: str(row["day"]))
    return Savings(
        tuple(by_day),
        rank_rows(savings(ledger, ["client_id"]), "saved_bytes", _SUMS),
        rank_rows(savings(ledger, ["topic"]), "saved_bytes", _SUMS),
    )


def figures(found: Savings) -> tuple[Figure, ...]:
    """Return the main figures for the top of the report: bytes saved, and fetches that brokers were spared."""
    total = found.total
    of_all = in_words(share(total["saved_bytes"], total["direct_bytes"]), "share")
    return (
        Figure("Bytes saved", total["saved_bytes"], "bytes", f"{of_all} of what clients' fetches came to"),
        Figure(
            "Fetches spared",
            total["saved_requests"],
            "count",
            f"{in_words(total['exchanges'], 'count')} of clients, {in_words(total['fetches'], 'count')} to brokers",
        ),
    )


def section(found: Savings) -> ReportSection:
    """Return the report section that compares the bytes of direct fetches with those through Sidefetch.

    It also has the saved share of protocol bytes, which are all bytes except records.
    """
    total = found.total
    talk = total["direct_bytes"] - total["delivered_bytes"]
    saved_talk = total["saved_bytes"] - (total["delivered_bytes"] - total["record_bytes"])
    return ReportSection(
        "savings",
        "What sessions saved",
        f"Clients' fetches would have come to {in_words(total['direct_bytes'], 'bytes')} at the brokers;"
        f" Sidefetch's own came to {in_words(total['actual_bytes'], 'bytes')}."
        f" {_records(total)}",
        _honest(total),
        figures=(
            Figure("Directly", total["direct_bytes"], "bytes", "requests and answers"),
            Figure("Through Sidefetch", total["actual_bytes"], "bytes", "the same"),
            Figure("Of talk, without records", share(saved_talk, talk), "share", "is saved"),
            Figure(
                "Looks at partitions", share(total["saved_looks"], total["direct_looks"]), "share", "are spared"
            ),
        ),
        charts=tuple(_charts(found)),
        tables=(
            _table("savings_clients", "Clients by bytes saved", "client_id", "Client", "clients", found.by_client),
            _table("savings_topics", "Topics by bytes saved", "topic", "Topic", "topics", found.by_topic),
        ),
    )


def _records(total: Row) -> str:
    """Return a sentence about the records: they are the same bytes on both sides, unless clients share fetches."""
    fetched, delivered = total["record_bytes"], total["delivered_bytes"]
    if not fetched or delivered <= fetched:
        return f"Records, which have to be sent either way, are {in_words(fetched, 'bytes')} of both."
    return (
        f"Clients share fetches: {in_words(fetched, 'bytes')} of records came from brokers, and"
        f" {in_words(delivered, 'bytes')} went to clients, {share(delivered, fetched):.1f} times as many."
    )


def _honest(total: Row) -> str:
    sentences = [
        "What a client with sessions would have cost is with its sessions, as if brokers had a slot for each."
    ]
    if total["is_modelled"]:
        sentences.append(
            "Where records were converted, the direct answer is modelled: with records as brokers have them."
        )
    if total["is_sampled"]:
        sentences.append("Not every fetch has a row: these are estimates.")
    sentences.append("Of a topic, what is no record is shared out by the partitions that were asked for.")
    return " ".join(sentences)


def _charts(found: Savings) -> list[Chart]:
    charts = []
    if len(found.by_day) > 1:
        charts.append(
            Chart(
                "lines",
                "Fetches by day, in bytes",
                f"From {found.by_day[0]['day']} to {found.by_day[-1]['day']}, directly and through Sidefetch",
                "bytes",
                tuple(f"{row['day']:%b} {row['day'].day}" for row in found.by_day),
                (
                    Series("directly", "client", tuple(row["direct_bytes"] for row in found.by_day)),
                    Series("through Sidefetch", "own", tuple(row["actual_bytes"] for row in found.by_day)),
                ),
            )
        )
    rows = [row for row in found.by_client.rows if row["saved_bytes"] > 0][:6]
    if rows:
        charts.append(
            Chart(
                "bars",
                "Clients that save most",
                ", ".join(
                    f"{display_name(row['client_id'])}: {in_words(row['saved_bytes'], 'bytes')}" for row in rows
                ),
                "bytes",
                tuple(display_name(row["client_id"]) for row in rows),
                (Series("saved", "own", tuple(row["saved_bytes"] for row in rows)),),
            )
        )
    return charts


def _table(name: str, title: str, key: str, head: str, what: str, ranking: Ranking) -> ReportTable:
    return table_of(
        name,
        title,
        ranking,
        (
            (ReportColumn(key, head), lambda row: display_name(row[key])),
            (ReportColumn("saved_bytes", "Saved", "bytes"), lambda row: row["saved_bytes"]),
            (
                ReportColumn("saved_share", "Of it all", "share"),
                lambda row: share(row["saved_bytes"], row["direct_bytes"]),
            ),
            (ReportColumn("direct_bytes", "Directly", "bytes"), lambda row: row["direct_bytes"]),
            (ReportColumn("actual_bytes", "Sidefetch", "bytes"), lambda row: row["actual_bytes"]),
            (ReportColumn("exchanges", "Fetches", "count"), lambda row: row["exchanges"]),
            (ReportColumn("fetches", "To brokers", "count"), lambda row: row["fetches"]),
        ),
        what,
    )
