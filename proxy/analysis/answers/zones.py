"""Who reads from where: bytes between racks, what they cost, and what closest replicas have saved of that.

Between a broker and a Sidefetch, requests and answers of Sidefetch's own fetches as the wire had them, whether a
client was given what they brought or not. What was saved is told by exchanges: records that came from another rack
than their leader's, at the prices of both ways. From Sidefetch to its client nothing crosses; what else a client
sends, such as what it produces, is not in it.
"""

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DoubleType, LongType, StringType, StructType

from proxy.analysis.answers.parts import UNKNOWN, finish_columns, total, union_rows, weighted, whole_sum
from proxy.analysis.frames import LedgerFrames

__all__ = ["DEFAULT_PRICES", "RESULT", "Prices", "zones"]

RESULT: Final = (
    StructType()
    .add("cluster_id", StringType())
    .add("source_rack", StringType())
    .add("reader_rack", StringType())
    .add("is_crossing", BooleanType())
    .add("bytes", LongType())
    .add("record_bytes", LongType())
    .add("cost", DoubleType())
    .add("closest_bytes", LongType())
    .add("closest_saved", DoubleType())
)
"""``is_crossing``: null where a rack is unknown, and then nothing is paid. ``bytes``: of Sidefetch's fetches, both
ways. ``record_bytes``: that clients were given, as brokers had them; of these ``closest_bytes`` were read where the
leader is not, and ``closest_saved`` is what they would have cost more from there: less than 0 if it is less."""

Pairs = Mapping[tuple[str, str], float]
_NO_PAIRS: Final[Pairs] = MappingProxyType({})
_APART: Final = "\0"
"""Stands between the names of two racks, and in none."""


def _both_ways(pairs: Pairs) -> Pairs:
    return MappingProxyType({(to, source): price for (source, to), price in pairs.items()} | dict(pairs))


def _not_negative(_: object, attribute: "attrs.Attribute[float]", value: float) -> None:
    if value < 0:
        raise ValueError(f"{attribute.name}: {value} is negative")


@attrs.frozen
class Prices:
    """What bytes cost that leave one rack for another, in whatever currency."""

    out_per_gb: float = attrs.field(default=0.01, validator=_not_negative)
    """For leaving a rack."""
    in_per_gb: float = attrs.field(default=0.01, validator=_not_negative)
    """For coming to another: where clouds take both, a byte is paid for twice."""
    gb_bytes: int = 2**30
    """Bytes that are paid for as one gigabyte. Clouds count so; with 1e9, 7 % more is to be paid."""
    of_pairs: Pairs = attrs.field(default=_NO_PAIRS, converter=_both_ways)
    """Exceptions: what a gigabyte costs from one rack to another, out and in together, and the other way where that
    is not told. A rack with itself: what it costs to stay."""

    def of(self, one: Column, other: Column) -> Column:
        """Of a byte between racks; 0 within one, and where one is unknown."""
        price = F.when((one == other) | (one == UNKNOWN) | (other == UNKNOWN), 0.0).otherwise(
            self.out_per_gb + self.in_per_gb
        )
        if self.of_pairs:
            told = ((F.lit(_APART.join(pair)), F.lit(float(each))) for pair, each in self.of_pairs.items())
            pairs = F.create_map(*chain.from_iterable(told))
            price = F.coalesce(F.try_element_at(pairs, F.concat_ws(_APART, one, other)), price)
        return price / self.gb_bytes


DEFAULT_PRICES: Final = Prices()


def zones(ledger: LedgerFrames, prices: Prices = DEFAULT_PRICES) -> DataFrame:
    """One row for each pair of racks between which anything went; racks that are not known are ``unknown``."""
    source, reader, leader = F.col("source_rack"), F.col("reader_rack"), F.col("leader_rack")
    between = ["cluster_id", "source_rack", "reader_rack"]
    more_from_leader = prices.of(leader, reader) - prices.of(source, reader)
    is_closest = (source != leader) & (source != UNKNOWN) & (leader != UNKNOWN)
    records = (
        _records(ledger)
        .withColumn("closest_bytes", F.when(is_closest, F.col("record_bytes")))
        .withColumn("closest_saved", F.col("closest_bytes") * more_from_leader)
    )
    pairs = (
        union_rows((_wire(ledger), records))
        .groupBy(*between)
        .agg(
            whole_sum(F.sum("bytes")).alias("bytes"),
            whole_sum(F.sum("record_bytes")).alias("record_bytes"),
            whole_sum(F.sum("closest_bytes")).alias("closest_bytes"),
            F.coalesce(F.sum("closest_saved"), F.lit(0.0)).alias("closest_saved"),
        )
    )
    is_known = (source != UNKNOWN) & (reader != UNKNOWN)
    paid = pairs.withColumn("cost", F.col("bytes") * prices.of(source, reader)).withColumn(
        "is_crossing", F.when(is_known, source != reader)
    )
    return finish_columns(paid, RESULT)


def _wire(ledger: LedgerFrames) -> DataFrame:
    """Bytes by the racks of the broker and of the Sidefetch, which is that of any of its exchanges."""
    racks = ledger.exchange.select("proxy_id", "reader_rack").distinct()
    readers = racks.groupBy("proxy_id").agg(F.max("reader_rack").alias("reader_rack"))
    fetched = ledger.fetch.groupBy("proxy_id", "cluster_id", "rack").agg(
        F.sum(weighted(F.col("request_bytes") + F.col("response_bytes"))).alias("bytes")
    )
    return fetched.join(readers, on="proxy_id", how="left").select(
        "cluster_id", _known("rack").alias("source_rack"), _known("reader_rack").alias("reader_rack"), "bytes"
    )


def _records(ledger: LedgerFrames) -> DataFrame:
    """Bytes by the racks of the broker that was read, the leader and the Sidefetch."""
    sources = ledger.exchange.select("cluster_id", "reader_rack", "weight", F.explode("sources").alias("source"))
    racks = (
        _known("source.rack").alias("source_rack"),
        _known("source.leader_rack").alias("leader_rack"),
        _known("reader_rack").alias("reader_rack"),
    )
    return sources.groupBy("cluster_id", *racks).agg(total("source.bytes").alias("record_bytes"))


def _known(rack: str) -> Column:
    return F.coalesce(F.col(rack), F.lit(UNKNOWN))
