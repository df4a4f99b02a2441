"""Readiness for Kafka 4: the API versions that each client uses, and those that Kafka 4 does not serve.

Kafka 4 does not serve the versions that ``proxy.convert.versions`` upgrades (KIP-896); it closes the connection on
such a request, without a response. Consumers below Fetch v4 cannot read the records that it sends, and it rejects
the records that producers below Produce v3 write (KIP-724). JoinGroup v0 and v1 are left out, because only 4.0.0
does not serve them (KAFKA-19444).

The result covers clients that use a Sidefetch, with their requests since they connected. It shows the versions that
a client uses, not those that it supports: a client that asks for ApiVersions may use newer versions with newer
brokers.
"""

from collections.abc import Mapping
from itertools import chain
from typing import Final

from kio.schema.index import api_key_map
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StringType, StructType

from proxy.analysis.answers.parts import CONNECTION, finish_columns, total
from proxy.analysis.frames import LedgerFrames
from proxy.convert.versions.table import UPGRADES

__all__ = ["RESULT", "SERVED_FROM", "readiness"]

RESULT: Final = (
    StructType()
    .add("cluster_id", StringType())
    .add("client_id", StringType())
    .add("software", StringType())
    .add("client_breaks", BooleanType())
    .add("client_bytes", LongType())
    .add("api_key", LongType())
    .add("api", StringType())
    .add("version", LongType())
    .add("upgraded_to", LongType())
    .add("breaks", BooleanType())
    .add("why", StringType())
    .add("connections", LongType())
    .add("requests", LongType())
    .add("request_bytes", LongType())
)
"""The result columns. ``client_breaks``: one of the client's versions breaks. ``client_bytes``: all requests of the
client and the responses to its fetches, by which clients are ranked. ``upgraded_to``: the version that Sidefetch
sent to brokers; equal to ``version`` if it did not upgrade the requests. ``why``: null if the version does not
break."""

_DROPPED: Final = tuple(upgrade for upgrade in UPGRADES.values() if upgrade.api != "JoinGroup")
SERVED_FROM: Final[Mapping[int, int]] = {
    upgrade.key: upgrade.version + 1 for upgrade in sorted(_DROPPED, key=lambda upgrade: upgrade.version)
}
"""The first version that Kafka 4 serves, by API key, if it is not 0."""
_NAMES: Final[Mapping[int, str]] = {
    key: "".join(word.capitalize() for word in name.split("_")) for key, name in api_key_map.items()
}
_FORMATS: Final[Mapping[int, str]] = {
    next(
        key for key, name in _NAMES.items() if name == "Fetch"
    ): "; clients of this version cannot read its records",
    next(
        key for key, name in _NAMES.items() if name == "Produce"
    ): "; it rejects the records that clients of this version write",
}


def readiness(ledger: LedgerFrames) -> DataFrame:
    """Return one row for each client, API and version that it used, with the version's support in Kafka 4.

    A client is a cluster, client id and software. A row has the numbers of connections, requests and bytes, the
    version that Sidefetch sent to brokers (rows are separate by it), and whether Kafka 4 does not serve the
    client's version (``breaks``), with the reason (``RESULT``). Clients with a version that Kafka 4 does not serve
    come first, then the others, each by their traffic.

    Cost: a scan for the last row of each connection, and a sort of clients times their APIs and versions.
    """
    spoken = _spoken(ledger)
    client = ["cluster_id", "client_id", "software"]
    by_client = (
        spoken.groupBy(*client)
        .agg(F.max("breaks").alias("client_breaks"), F.sum(_traffic()).alias("client_bytes"))
        .withColumnsRenamed({name: f"of_{name}" for name in client})
    )
    by_version = spoken.groupBy(*client, "key", "version", "upgraded_to", "breaks").agg(
        F.count("*").alias("connections"),
        F.sum("requests").alias("requests"),
        F.sum("bytes").alias("request_bytes"),
    )
    same_client = [F.col(name).eqNullSafe(F.col(f"of_{name}")) for name in client]
    ranked = (
        by_version.join(by_client, on=same_client, how="inner")
        .withColumn("api_key", F.col("key"))
        .withColumn("api", _looked_up(_NAMES, "key"))
        .withColumn("why", _why())
    )
    order = ("client_breaks", "client_bytes", "client_id", "software", "breaks", "requests")
    return finish_columns(ranked.orderBy(*(F.desc(name) for name in order), "api_key", "version"), RESULT)


def _spoken(ledger: LedgerFrames) -> DataFrame:
    """Return a row for each connection, API and version, from the totals in the connection's last client row."""
    last = ledger.client.groupBy(*CONNECTION).agg(
        *(F.max_by(name, "seq").alias(name) for name in ("cluster_id", "client_id", "software", "apis"))
    )
    answered = ledger.exchange.groupBy(*CONNECTION).agg(total("response_bytes").alias("answered_bytes"))
    used = last.join(answered, on=list(CONNECTION), how="left").select(
        "cluster_id", "client_id", "software", "answered_bytes", F.posexplode("apis").alias("position", "used")
    )
    served_from = F.coalesce(_looked_up(SERVED_FROM, "used.key"), F.lit(0))
    return used.select(
        "cluster_id",
        "client_id",
        "software",
        # The connection's response bytes count once, in the row of its first API.
        F.when(F.col("position") == 0, F.col("answered_bytes")).alias("answered_bytes"),
        "used.*",
        (F.col("used.version") < served_from).alias("breaks"),
    )


def _traffic() -> Column:
    return F.col("bytes") + F.coalesce("answered_bytes", F.lit(0))


def _why() -> Column:
    dropped = F.format_string(
        "Kafka 4 serves %s from v%d on, not v%d (KIP-896)",
        _looked_up(_NAMES, "key"),
        _looked_up(SERVED_FROM, "key"),
        F.col("version"),
    )
    formats = F.coalesce(F.concat(_looked_up(_FORMATS, "key"), F.lit(" (KIP-724)")), F.lit(""))
    return F.when(F.col("breaks"), F.concat(dropped, formats))


def _looked_up(table: Mapping[int, int] | Mapping[int, str], key: str) -> Column:
    """Return the entry of *table* for column *key*; null if there is none."""
    entries = [F.lit(each) for each in chain.from_iterable(table.items())]
    return F.try_element_at(F.create_map(*entries), F.col(key).cast("int"))
