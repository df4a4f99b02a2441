"""The ledger's columns as Spark's types, from the ledger's one definition (``proxy.telemetry.ledger``)."""

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
"""Of each record. All columns are nullable, as Spark takes files to be: reading holds rows to what the ledger says
of nulls."""
