"""Clients whose records are converted, and the cost of that."""

from typing import Final

import attrs

from proxy.analysis.answers.conversion import conversion
from proxy.analysis.frames import LedgerFrames
from proxy.analysis.report.model import Chart, Figure, ReportColumn, ReportSection, Series
from proxy.analysis.report.ranking import Ranking, named, share, summed, table_of, the_first
from proxy.analysis.report.words import in_words, plural

__all__ = ["ConversionFigures", "asked", "figures", "section"]

_SUMS: Final = ("exchanges", "records", "in_bytes", "out_bytes", "padding_bytes", "cpu_s", "waited_s")
_SECOND_US: Final = 1_000_000


@attrs.frozen
class ConversionFigures:
    """Rows of ``proxy.analysis.answers.conversion`` by client, those with the most CPU time first."""

    by_client: Ranking

    def total(self, name: str) -> float:
        """Return the total of a sum."""
        return float(self.by_client.total(name))


def asked(ledger: LedgerFrames) -> ConversionFigures:
    """Compute the result; a client is its id, its software and its target format, in any cluster."""
    by_client = summed(conversion(ledger), ["client_id", "software", "converted_to"], _SUMS)
    return ConversionFigures(the_first(by_client, "cpu_s", _SUMS))


def figures(found: ConversionFigures) -> tuple[Figure, ...]:
    """Return the figures for the report's head."""
    if not found.by_client.count:
        return ()
    cpu = in_words(found.total("cpu_s") * _SECOND_US, "us")
    return (Figure("Converted", found.total("in_bytes"), "bytes", f"{cpu} of CPU"),)


def section(found: ConversionFigures) -> ReportSection:
    """Return the section on the cost of old record formats, which Sidefetch bears in place of the brokers."""
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
                    (ReportColumn("client_id", "Client"), lambda row: named(row["client_id"])),
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
    told = "; ".join(
        f"{named(row['client_id'])}: {in_words(value, 'us')}" for row, value in zip(rows, values, strict=True)
    )
    names = tuple(named(row["client_id"]) for row in rows)
    return [Chart("bars", "CPU time of conversions", told, "us", names, (Series("CPU", "crossed", values),))]
