"""A fleet's ledger as frames, one a record."""

import attrs
from pyspark.sql import DataFrame

__all__ = ["LedgerFrames"]


@attrs.frozen
class LedgerFrames:
    """Each has the columns of its record (``schemas.SCHEMAS``), and each row, told by (proxy_id, seq), once."""

    exchange: DataFrame
    fetch: DataFrame
    session: DataFrame
    client: DataFrame
    topology: DataFrame
    lost: DataFrame
