"""A fleet's ledger as Spark DataFrames, one per record type."""

import attrs
from pyspark.sql import DataFrame

__all__ = ["LedgerFrames"]


@attrs.frozen
class LedgerFrames:
    """The DataFrames of a ledger, one per record type.

    Each has the columns of its record (``schemas.SCHEMAS``) and each row, identified by (proxy_id, seq), once.
    """

    exchange: DataFrame
    fetch: DataFrame
    session: DataFrame
    client: DataFrame
    topology: DataFrame
    lost: DataFrame
