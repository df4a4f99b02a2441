"""Spark schemas of the ledger's records, derived from the ledger's definition (``proxy.telemetry.ledger``)."""

from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql.types import ArrayType, DataType, DoubleType, LongType, StringType, StructField, StructType

from proxy.telemetry.ledger import RECORDS, LedgerColumn

__all__ = ["SCHEMAS"]

_SCALARS: Final[Mapping[str, DataType]] = {"string": StringType(), "long": LongType(), "double": DoubleType()}


def _struct(columns: Iterable[LedgerColumn]) -> StructType:
    return StructType([StructField(column.name, _type(column), nullable=True) for column in columns])


def _type(column: LedgerColumn) -> DataType:
    return ArrayType(_struct(column.items)) if column.kind == "array" else _SCALARS[column.kind]


SCHEMAS: Final[Mapping[str, StructType]] = {record: _struct(columns) for record, columns in RECORDS.items()}
"""The schema of each record, by record name. All columns are nullable, because Spark treats columns of files so;
``lines`` rejects rows with nulls that the ledger does not allow."""
