"""With racks laid out so: how many bytes of records would cross from one to another.

What was read is told by exchanges: so many bytes of a topic's partitions that a broker leads. Where else they are
is told by the topology. A row tells a topic's partitions that one broker leads only together: its bytes are taken
to be spread over them evenly. That is exact where all of them have replicas in the same racks, as in clusters with
as many racks as replicas; else it is an estimate. Bytes of which the topology does not know the partitions are told
apart.
"""

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType

from proxy.analysis.answers.parts import finish_columns, weighted, whole_sum
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
"""A row for each rack in which there are readers then; null: readers that do not know where they are.

``bytes``: of records, as brokers had them; ``crossing_bytes``: of these, what came from another rack, or to or from
nobody knows where; ``then_crossing_bytes``: what would; ``unknown_bytes``: what the topology does not know, and
which is counted as it was in ``then_crossing_bytes``, too."""

_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_NO_NODES: Final[Mapping[int, str]] = MappingProxyType({})


@attrs.frozen
class RackLayout:
    """What is to be otherwise."""

    brokers: Mapping[int, str] = _NO_NODES
    """Rack by node id; the others are where they are."""
    readers: Mapping[str, str] = _NONE
    """Where the readers of a rack are then; the others are where they are."""
    closest: bool = True
    """Whether replicas in the reader's rack are read; if not, leaders."""


def racks(ledger: LedgerFrames, layout: RackLayout | None = None) -> DataFrame:
    """Cost: the exchanges once; what is joined are topics times brokers times racks."""
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
    """Of each partition, as last told, the leader, its rack then, and those of all replicas in sync."""
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
    """Bytes, and those of them that crossed, by what was read and by the reader's rack then."""
    sources = ledger.exchange.select("cluster_id", "reader_rack", "weight", F.explode("sources").alias("source"))
    is_near = F.coalesce(F.col("source.rack") == F.col("reader_rack"), F.lit(False))
    size = weighted("source.bytes")
    return sources.groupBy(
        "cluster_id",
        F.col("source.topic").alias("topic"),
        F.col("source.leader_node").alias("leader"),
        _moved(layout.readers, F.col("reader_rack"), F.col("reader_rack")).alias("reader_rack"),
    ).agg(F.sum(size).alias("bytes"), F.sum(F.when(is_near, 0.0).otherwise(size)).alias("crossing_bytes"))


def _moved(where: Mapping[int, str] | Mapping[str, str], key: Column, now: Column) -> Column:
    if not where:
        return now
    entries = [F.lit(each) for each in chain.from_iterable(where.items())]
    return F.coalesce(F.try_element_at(F.create_map(*entries), key.cast(_type_of(where))), now)


def _type_of(where: Mapping[int, str] | Mapping[str, str]) -> str:
    return "int" if isinstance(next(iter(where)), int) else "string"
