"""The report's section on traffic between racks (availability zones), and its cost."""

from typing import Final

import attrs

from proxy.analysis.answers.parts import UNKNOWN
from proxy.analysis.answers.zones import Prices, zones
from proxy.analysis.frames import LedgerFrames
from proxy.analysis.report.model import Chart, Figure, ReportColumn, ReportScope, ReportSection, Series
from proxy.analysis.report.ranking import Ranking, Row, rank_rows, share, sum_by, table_of
from proxy.analysis.report.words import in_words

__all__ = ["Zones", "figures", "run_query", "section"]

_SUMS: Final = ("bytes", "record_bytes", "cost", "closest_bytes", "closest_saved")
_MOST_PAIRS: Final = 64
_MOST_RACKS: Final = 6


@attrs.frozen
class Zones:
    """The query result for the section: bytes and cost by pair of racks, in all clusters together."""

    pairs: Ranking
    """The pairs of racks with the most bytes, with sums of ``proxy.analysis.answers.zones``."""
    prices: Prices

    @property
    def crossing_bytes(self) -> int:
        return self._sum("bytes", True)

    @property
    def inner_bytes(self) -> int:
        return self._sum("bytes", False)

    @property
    def unknown_bytes(self) -> int:
        """The bytes of traffic for which the rack of the broker or of Sidefetch is unknown."""
        return self._sum("bytes", None)

    @property
    def cost(self) -> float:
        return self.pairs.total("cost")

    @property
    def closest_saved(self) -> float:
        """The cost that closest replicas saved: the additional cost if all records had been read from leaders."""
        return self.pairs.total("closest_saved")

    @property
    def closest_bytes(self) -> int:
        return int(self.pairs.total("closest_bytes"))

    @property
    def readerless_bytes(self) -> int:
        """The bytes of traffic of Sidefetch processes that do not know their own rack."""
        return sum(row["bytes"] for row in self.pairs.rows if row["reader_rack"] == UNKNOWN)

    def _sum(self, name: str, is_crossing: bool | None) -> int:
        return sum(row[name] for row in self.pairs.rows if row["is_crossing"] is is_crossing)


def run_query(ledger: LedgerFrames, prices: Prices) -> Zones:
    """Run the Spark query for traffic between racks; keep the 64 pairs with the most bytes, and sum up others."""
    pairs = sum_by(zones(ledger, prices), ["source_rack", "reader_rack", "is_crossing"], _SUMS)
    return Zones(rank_rows(pairs, "bytes", _SUMS, _MOST_PAIRS), prices)


def figures(found: Zones, about: ReportScope) -> tuple[Figure, ...]:
    """Return the main figure for the top of the report: the share of bytes that cross racks, and the cost a month.

    The share is None if no rack is known.

    Args: about: the scope of the report, whose period is extrapolated to a month.
    """
    known = found.crossing_bytes + found.inner_bytes
    if not known:
        return (Figure("Crosses racks", None, "bytes", "no rack is known"),)
    cost = in_words(about.a_month(found.cost), "usd")
    return (Figure("Crosses racks", share(found.crossing_bytes, known), "share", f"of all bytes: {cost} a month"),)


def section(found: Zones, about: ReportScope) -> ReportSection:
    """Return the report section on traffic between racks in both directions: bytes, cost, and a matrix of racks.

    Args: about: the scope of the report, whose period is extrapolated to a month.
    """
    known = found.crossing_bytes + found.inner_bytes
    answer = (
        f"{in_words(share(found.crossing_bytes, known), 'share')} of all bytes cross from one rack into another:"
        f" {in_words(found.crossing_bytes, 'bytes')}, for {in_words(found.cost, 'usd')}."
        if known
        else "No rack is known: set broker.rack on brokers, --rack on Sidefetch."
    )
    if found.closest_bytes:
        answer += (
            f" Closest replicas brought {in_words(found.closest_bytes, 'bytes')} of records;"
            f" from their leaders these would have cost {in_words(found.closest_saved, 'usd')} more."
        )
    unknown = f" Of {in_words(found.unknown_bytes, 'bytes')} a rack is not known." if found.unknown_bytes else ""
    price = found.prices.out_per_gb + found.prices.in_per_gb
    return ReportSection(
        "zones",
        "What crosses racks",
        answer,
        f"By a price of {in_words(price, 'usd')} a GiB, out and in together. What clients produce is not in it."
        f"{unknown}",
        figures=(
            Figure("Crossed", found.crossing_bytes, "bytes", "requests and answers"),
            Figure(
                "It costs",
                found.cost,
                "usd",
                f"{in_words(about.a_month(found.cost), 'usd')} a month at this rate",
            ),
            Figure("Saved by closest replicas", found.closest_saved, "usd", "against reading from leaders"),
        ),
        charts=tuple(_matrix(found)) if known else (),
        tables=(
            table_of(
                "zones_pairs",
                "From rack to rack",
                attrs.evolve(found.pairs, rows=found.pairs.rows[:12], rest=_rest(found.pairs, 12)),
                (
                    (ReportColumn("source_rack", "From"), lambda row: row["source_rack"]),
                    (ReportColumn("reader_rack", "To"), lambda row: row["reader_rack"]),
                    (ReportColumn("bytes", "Both ways", "bytes"), lambda row: row["bytes"]),
                    (ReportColumn("record_bytes", "Records", "bytes"), lambda row: row["record_bytes"]),
                    (
                        ReportColumn("closest_bytes", "By closest replicas", "bytes"),
                        lambda row: row["closest_bytes"],
                    ),
                    (ReportColumn("cost", "Cost", "usd"), lambda row: row["cost"]),
                ),
                "pairs",
            ),
        ),
    )


def _rest(pairs: Ranking, most: int) -> Row | None:
    """Return the sums of the pairs that are not shown; None if all are."""
    left = attrs.evolve(pairs, rows=pairs.rows[most:])
    return {name: left.total(name) for name in _SUMS} if left.rows or left.rest else None


def _matrix(found: Zones) -> list[Chart]:
    racks: dict[str, int] = {}
    for row in found.pairs.rows:
        for rack in (row["source_rack"], row["reader_rack"]):
            racks[rack] = racks.get(rack, 0) + row["bytes"]
    most = sorted(
        sorted(racks, key=lambda rack: -racks[rack])[:_MOST_RACKS], key=lambda rack: (rack == UNKNOWN, rack)
    )
    went = {(row["source_rack"], row["reader_rack"]): row["bytes"] for row in found.pairs.rows}
    series = tuple(
        Series(
            source,
            "unknown" if source == UNKNOWN else "crossed",
            tuple(went.get((source, reader), 0) for reader in most),
        )
        for source in most
    )
    summary = "; ".join(f"{one} to {other}: {in_words(went[one, other], 'bytes')}" for one, other in list(went)[:9])
    return [Chart("matrix", "From the rack at the left to the one above", summary, "bytes", tuple(most), series)]
