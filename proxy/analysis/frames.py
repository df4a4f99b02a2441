"""A fleet's ledger as Spark DataFrames, one per record type."""

import attrs
from pyspark.sql import DataFrame

__all__ = ["LedgerFrames"]


@attrs.frozen
class LedgerFrames:
    """The rows of a ledger as Spark DataFrames, one per record type.

    Each frame has the columns of its record type (``schemas.SCHEMAS``). Duplicates, which have the same
    ``proxy_id`` and ``seq``, are removed: each row is there once.
    """

    exchange: DataFrame
    """Client fetches and their responses."""
    fetch: DataFrame
    """Upstream fetches: Sidefetch's own Fetch requests to brokers, and the responses."""
    session: DataFrame
    """Events of fetch sessions: created, refused, reset, evicted and closed."""
    client: DataFrame
    """The software and the used API versions of client connections: a row every five minutes, and one at the end of
    each."""
    topology: DataFrame
    """Partitions with their leaders and replicas, as ``sidefetch topology`` wrote them."""
    lost: DataFrame
    """Ranges of rows that a sidecar had to drop, with the reason."""
