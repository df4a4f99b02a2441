"""The report's section on clients whose records Sidefetch converts to older formats, and the cost."""

from typing import Final

import attrs

from proxy.analysis.answers.conversion import conversion
from proxy.analysis.frames import LedgerFrames
from proxy.analysis.report.model import Chart, Figure, ReportColumn, ReportSection, Series
from proxy.analysis.report.ranking import Ranking, display_name, rank_rows, share, sum_by, table_of
from proxy.analysis.report.words import in_words, plural

__all__ = ["ConversionFigures", "figures", "run_query", "section"]

_SUMS: Final = ("exchanges", "records", "in_bytes", "out_bytes", "padding_bytes", "cpu_s", "waited_s")
_SECOND_US: Final = 1_000_000


@attrs.frozen
class ConversionFigures:
    """The query result for the section: sums of conversions by client, the most CPU time first."""

    by_client: Ranking
    """Sums of ``proxy.analysis.answers.conversion`` by client id, software and target format."""

    def total(self, name: str) -> float:
        """Return the sum of the column *name*, such as ``cpu_s``, over all clients."""
        return float(self.by_client.total(name))


def run_query(ledger: LedgerFrames) -> ConversionFigures:
    """Run the Spark query for conversions; keep the ten clients with the most CPU time, and the sums of all others.

    A client is a client id, software and target record format here, in all clusters together.
    """
    by_client = sum_by(conversion(ledger), ["client_id", "software", "converted_to"], _SUMS)
    return ConversionFigures(rank_rows(by_client, "cpu_s", _SUMS))


def figures(found: ConversionFigures) -> tuple[Figure, ...]:
    """Return the main figure for the top of the report: the bytes of converted records; nothing without any."""
    if not found.by_client.count:
        return ()
    cpu = in_words(found.total("cpu_s") * _SECOND_US, "us")
    return (Figure("Converted", found.total("in_bytes"), "bytes", f"{cpu} of CPU"),)


def section(found: ConversionFigures) -> ReportSection:
    """Return the report section on record conversion: its extent, a chart of CPU time and a table of clients."""
    count = found.by_client.count
    converted, padding = found.total("in_bytes"), found.total("padding_bytes")
    answer = "No records had to be converted."
    if count:
        of_all = in_words(share(padding, found.total("out_bytes") + padding), "share")
        answer = (
            f"{plural(count, 'client')} had {in_words(converted, 'bytes')} of records converted, which took"
            f" {in_words(found.total('cpu_s') * _SECOND_US, 'us')} of CPU. {in_words(padding, 'bytes')} of what was"
            f" sent ({of_all}) was declared before, and not used."
        )
    return ReportSection(
        "conversion",
        "Conversions",
        answer,
        charts=tuple(_chart(found)),
        tables=(
            table_of(
                "conversion_clients",
                "Clients by CPU time",
                found.by_client,
                (
                    (ReportColumn("client_id", "Client"), lambda row: display_name(row["client_id"])),
                    (ReportColumn("software", "Software"), lambda row: row["software"]),
                    (ReportColumn("converted_to", "Format"), lambda row: f"v{row['converted_to']}"),
                    (ReportColumn("in_bytes", "Before", "bytes"), lambda row: row["in_bytes"]),
                    (ReportColumn("out_bytes", "After", "bytes"), lambda row: row["out_bytes"]),
                    (ReportColumn("padding_bytes", "Not used", "bytes"), lambda row: row["padding_bytes"]),
                    (ReportColumn("cpu_us", "CPU", "us"), lambda row: row["cpu_s"] * _SECOND_US),
                ),
                "clients",
            ),
        ),
    )


def _chart(found: ConversionFigures) -> list[Chart]:
    rows = found.by_client.rows[:6]
    if not rows:
        return []
    values = tuple(row["cpu_s"] * _SECOND_US for row in rows)
    summary = "; ".join(
        f"{display_name(row['client_id'])}: {in_words(value, 'us')}"
        for row, value in zip(rows, values, strict=True)
    )
    names = tuple(display_name(row["client_id"]) for row in rows)
    return [Chart("bars", "CPU time of conversions", summary, "us", names, (Series("CPU", "crossed", values),))]
