"""The same queries for both engines: sums by client, bytes between racks, a percentile per day."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import duckdb
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

__all__ = ["QUERIES", "Query", "by_duckdb", "by_spark"]

_DAY: Final = "at_us // 86400000000"


@attrs.frozen
class Query:
    """Over the exchanges of a ledger."""

    name: str
    spark: Callable[[DataFrame], DataFrame]
    sql: str
    """DuckDB's, of a view ``exchange``."""


def _by_client(exchange: DataFrame) -> DataFrame:
    direct = F.sum((F.col("direct_request_bytes") + F.col("direct_response_bytes")) * F.col("weight"))
    return exchange.groupBy("client_id", F.expr("at_us div 86400000000").alias("day")).agg(direct.alias("bytes"))


def _between_racks(exchange: DataFrame) -> DataFrame:
    sources = exchange.select("reader_rack", "weight", F.explode("sources").alias("source"))
    return sources.groupBy("source.rack", "reader_rack").agg(
        F.sum(F.col("source.bytes") * F.col("weight")).alias("bytes")
    )


def _percentile(exchange: DataFrame) -> DataFrame:
    return exchange.groupBy(F.expr("at_us div 86400000000").alias("day")).agg(
        F.percentile_approx("total_us", 0.99, 1000).alias("us")
    )


QUERIES: Final = (
    Query(
        "bytes by client and day",
        _by_client,
        f"select client_id, {_DAY} as day, sum((direct_request_bytes + direct_response_bytes) * weight)"
        " from exchange group by all",
    ),
    Query(
        "bytes between racks",
        _between_racks,
        "select source.rack, reader_rack, sum(source.bytes * weight)"
        " from (select reader_rack, weight, unnest(sources) as source from exchange) group by all",
    ),
    Query(
        "p99 of waits by day",
        _percentile,
        f"select {_DAY} as day, approx_quantile(total_us, 0.99) from exchange group by all",
    ),
)


def by_spark(spark: SparkSession, folder: Path) -> Mapping[str, Callable[[], int]]:
    """Return a function that runs each query and returns the number of its rows."""
    return {query.name: partial(_collected, spark, folder, query) for query in QUERIES}


def by_duckdb(folder: Path, threads: int) -> Mapping[str, Callable[[], int]]:
    """Return the same for DuckDB, with as many threads and as much memory."""
    database = duckdb.connect(config={"threads": threads, "memory_limit": "4GB"})
    database.execute(f"create view exchange as select * from read_parquet('{folder}/*.parquet')")
    return {query.name: partial(_fetched, database, query.sql) for query in QUERIES}


def _collected(spark: SparkSession, folder: Path, query: Query) -> int:
    # A frame that is collected twice is not computed twice: Spark keeps the results of stages.
    return len(query.spark(spark.read.parquet(str(folder))).collect())


def _fetched(database: duckdb.DuckDBPyConnection, sql: str) -> int:
    return len(database.execute(sql).fetchall())
