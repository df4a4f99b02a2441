"""What-if question: bytes of records that cross racks, with brokers or readers in other racks.

Exchange rows have the bytes that were read of a topic's partitions with the same leader, topology rows the racks of
their replicas. Since an exchange row has one sum for these partitions, its bytes are assumed to be spread evenly
over them. That is exact if all of them have replicas in the same racks, as in clusters with as many racks as
replicas; otherwise it is an estimate. Bytes of partitions that the topology does not have are in a column of their
own.
"""

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType

from proxy.analysis.answers.parts import finish_columns, records_read_once, whole_sum
from proxy.analysis.frames import LedgerFrames

__all__ = ["RESULT", "RackLayout", "racks"]

RESULT: Final = (
    StructType()
    .add("cluster_id", StringType())
    .add("reader_rack", StringType())
    .add("bytes", LongType())
    .add("crossing_bytes", LongType())
    .add("then_crossing_bytes", LongType())
    .add("unknown_bytes", LongType())
)
"""The result columns, with a row for each rack that has readers in the new layout; null: readers of unknown rack.

``bytes``: bytes of records, in the brokers' size, those of shared fetches once; ``crossing_bytes``: of these,
records that came from another rack, or whose source or reader rack is unknown; ``then_crossing_bytes``: the same in
the new layout; ``unknown_bytes``: records of partitions that the topology does not have; for them
``then_crossing_bytes`` has the actual ``crossing_bytes``."""

_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_NO_NODES: Final[Mapping[int, str]] = MappingProxyType({})


@attrs.frozen
class RackLayout:
    """A hypothetical layout of brokers and readers in racks, given as changes to the actual one.

    A reader is a sidecar with its clients.
    """

    brokers: Mapping[int, str] = _NO_NODES
    """New racks of brokers, by node id; the others stay."""
    readers: Mapping[str, str] = _NONE
    """New racks of readers, by present rack; the others stay."""
    closest: bool = True
    """Whether readers read from an in-sync replica in their rack, if there is one; otherwise they read from
    leaders."""


def racks(ledger: LedgerFrames, layout: RackLayout | None = None) -> DataFrame:
    """Return the bytes of records that cross racks, now and with *layout*, by cluster and rack of the readers.

    The readers' rack is that in *layout* (``RESULT``). The default layout changes no rack, and readers use the
    closest replicas. The ledger must have topology rows.

    Cost: one scan of the exchanges; the joined frames have topics times brokers times racks rows.
    """
    layout = layout or RackLayout()
    led_by = ["cluster_id", "topic", "leader"]
    partitions = _partitions(ledger, layout)
    known = partitions.groupBy(*led_by).agg(F.count("*").alias("partitions"))
    near = F.array_distinct("racks") if layout.closest else F.array("leader_rack")
    local = (
        partitions.select(*led_by, F.explode(near).alias("rack"))
        .groupBy(*led_by, "rack")
        .agg(F.count("*").alias("near"))
    )
    read = _read(ledger, layout)
    joined = read.join(F.broadcast(known), on=led_by, how="left").join(
        F.broadcast(local.withColumnRenamed("rack", "reader_rack")), on=[*led_by, "reader_rack"], how="left"
    )
    far = 1 - F.coalesce(F.col("near"), F.lit(0)) / F.col("partitions")
    is_unknown = F.col("partitions").isNull()
    then = F.when(is_unknown, F.col("crossing_bytes")).otherwise(F.col("bytes") * far)
    return finish_columns(
        joined.groupBy("cluster_id", "reader_rack").agg(
            whole_sum(F.sum("bytes")).alias("bytes"),
            whole_sum(F.sum("crossing_bytes")).alias("crossing_bytes"),
            whole_sum(F.sum(then)).alias("then_crossing_bytes"),
            whole_sum(F.sum(F.when(is_unknown, F.col("bytes")))).alias("unknown_bytes"),
        ),
        RESULT,
    )


def _partitions(ledger: LedgerFrames, layout: RackLayout) -> DataFrame:
    """Return the leader, its rack and the racks of the in-sync replicas of each partition, from its latest row.

    Racks are those of the new layout.
    """
    last = ledger.topology.groupBy("cluster_id", "topic", "partition").agg(
        F.max_by(F.struct("leader", "replicas"), "at_us").alias("last")
    )
    in_sync = F.filter("last.replicas", lambda each: each["in_sync"] == 1)
    leads = F.filter("last.replicas", lambda each: each["node"] == F.col("last.leader"))
    return last.select(
        "cluster_id",
        "topic",
        F.col("last.leader").alias("leader"),
        F.transform(in_sync, lambda each: _moved(layout.brokers, each["node"], each["rack"])).alias("racks"),
        F.transform(leads, lambda each: _moved(layout.brokers, each["node"], each["rack"]))[0].alias("leader_rack"),
    )


def _read(ledger: LedgerFrames, layout: RackLayout) -> DataFrame:
    """Return bytes, and bytes that crossed racks, by topic, leader and the reader's rack in the new layout."""
    is_near = F.coalesce(F.col("rack") == F.col("reader_rack"), F.lit(False))
    crossing = F.when(is_near, 0.0).otherwise(F.col("bytes"))
    return (
        records_read_once(ledger)
        .withColumn("crossing_bytes", crossing)
        .groupBy(
            "cluster_id",
            "topic",
            F.col("leader_node").alias("leader"),
            _moved(layout.readers, F.col("reader_rack"), F.col("reader_rack")).alias("reader_rack"),
        )
        .agg(F.sum("bytes").alias("bytes"), F.sum("crossing_bytes").alias("crossing_bytes"))
    )


def _moved(where: Mapping[int, str] | Mapping[str, str], key: Column, now: Column) -> Column:
    if not where:
        return now
    entries = [F.lit(each) for each in chain.from_iterable(where.items())]
    return F.coalesce(F.try_element_at(F.create_map(*entries), key.cast(_type_of(where))), now)


def _type_of(where: Mapping[int, str] | Mapping[str, str]) -> str:
    return "int" if isinstance(next(iter(where)), int) else "string"
