"""Zones: bytes between racks, their cost, and the savings of reading from the closest replicas.

The traffic is that of the upstream fetches: requests and responses as sent between a broker and a Sidefetch,
whether or not clients received the records. The savings come from exchange rows: records that were read in another
rack than their leader's, by the difference of the two prices. Sidefetch is in its client's rack, so nothing crosses
racks between them. Other requests of clients, such as Produce, are not included.

Records that several clients get from one shared fetch cross racks once, and count once in all columns
(``parts.records_read_once``).
"""

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DoubleType, LongType, StringType, StructType

from proxy.analysis.answers.parts import (
    UNKNOWN,
    finish_columns,
    records_read_once,
    union_rows,
    weighted,
    whole_sum,
)
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
"""The result columns. ``is_crossing``: null if a rack is unknown; such traffic costs nothing here. ``bytes``:
upstream fetches, requests and responses. ``record_bytes``: records that clients received, in the brokers' size,
those of shared fetches once; ``closest_bytes``: of these, records that were read in another rack than the leader's;
``closest_saved``: the extra cost of reading them from the leader, negative if the leader is cheaper. ``cost`` and
``closest_saved`` are in the currency of ``Prices``."""

Pairs = Mapping[tuple[str, str], float]
"""Prices of a gigabyte by (from, to) rack."""
_NO_PAIRS: Final[Pairs] = MappingProxyType({})
_APART: Final = "\0"
"""Separates the names of two racks in a key; no rack name contains it."""


def _both_ways(pairs: Pairs) -> Pairs:
    return MappingProxyType({(to, source): price for (source, to), price in pairs.items()} | dict(pairs))


def _not_negative(_: object, attribute: "attrs.Attribute[float]", value: float) -> None:
    if value < 0:
        raise ValueError(f"{attribute.name}: {value} is negative; accepted: 0 or more")


@attrs.frozen
class Prices:
    """Prices of network traffic between racks (availability zones) per gigabyte, in any currency.

    Raises: ValueError: ``out_per_gb`` or ``in_per_gb`` is negative.
    """

    out_per_gb: float = attrs.field(default=0.01, validator=_not_negative)
    """Price of a gigabyte that leaves a rack."""
    in_per_gb: float = attrs.field(default=0.01, validator=_not_negative)
    """Price of a gigabyte that enters a rack. Some clouds charge both directions, so that a byte costs twice."""
    gb_bytes: int = 2**30
    """Bytes that are billed as one gigabyte. Clouds use 2**30; with 1e9 the cost is 7 % higher."""
    of_pairs: Pairs = attrs.field(default=_NO_PAIRS, converter=_both_ways)
    """Exceptions by (from, to) rack: the price of a gigabyte, out and in together. A pair also applies in the
    opposite direction, unless that is given. A rack paired with itself: the price of traffic within the rack."""

    def of(self, one: Column, other: Column) -> Column:
        """Return a column with the price of a byte that is sent from the rack *one* to the rack *other*.

        The price is 0 if the racks are equal or one is unknown (``UNKNOWN``), unless *of_pairs* has the pair.
        Otherwise it is the sum of the prices for leaving and for entering a rack.
        """
        price = F.when((one == other) | (one == UNKNOWN) | (other == UNKNOWN), 0.0).otherwise(
            self.out_per_gb + self.in_per_gb
        )
        if self.of_pairs:
            entries = ((F.lit(_APART.join(pair)), F.lit(float(each))) for pair, each in self.of_pairs.items())
            pairs = F.create_map(*chain.from_iterable(entries))
            price = F.coalesce(F.try_element_at(pairs, F.concat_ws(_APART, one, other)), price)
        return price / self.gb_bytes


DEFAULT_PRICES: Final = Prices()
"""Prices of 0.01 per gigabyte in each direction."""


def zones(ledger: LedgerFrames, prices: Prices = DEFAULT_PRICES) -> DataFrame:
    """Return the bytes between each pair of racks, their cost, and the cost that closest replicas saved.

    There is one row for each cluster, rack of the broker (``source_rack``) and rack of Sidefetch (``reader_rack``)
    with traffic, also if both racks are the same (``RESULT``). An unknown rack is called ``unknown``.
    """
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
    """Return the bytes of upstream fetches, in both directions, by the racks of the broker and of Sidefetch.

    Fetch rows do not have the rack of Sidefetch; it comes from exchange rows of the same process.
    """
    racks = ledger.exchange.select("proxy_id", "reader_rack").distinct()
    readers = racks.groupBy("proxy_id").agg(F.max("reader_rack").alias("reader_rack"))
    fetched = ledger.fetch.groupBy("proxy_id", "cluster_id", "rack").agg(
        F.sum(weighted(F.col("request_bytes") + F.col("response_bytes"))).alias("bytes")
    )
    return fetched.join(readers, on="proxy_id", how="left").select(
        "cluster_id", _known("rack").alias("source_rack"), _known("reader_rack").alias("reader_rack"), "bytes"
    )


def _records(ledger: LedgerFrames) -> DataFrame:
    """Return the bytes of records by the racks of the broker that was read, of the leader and of Sidefetch."""
    racks = (
        _known("rack").alias("source_rack"),
        _known("leader_rack").alias("leader_rack"),
        _known("reader_rack").alias("reader_rack"),
    )
    return (
        records_read_once(ledger).groupBy("cluster_id", *racks).agg(whole_sum(F.sum("bytes")).alias("record_bytes"))
    )


def _known(rack: str) -> Column:
    return F.coalesce(F.col(rack), F.lit(UNKNOWN))
