"""Rows of the ledger made by hand: columns that a test does not name have neutral values."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from proxy.analysis.frames import LedgerFrames
from proxy.analysis.schemas import SCHEMAS
from proxy.telemetry.ledger import RECORDS, SCHEMA, LedgerColumn, Row

__all__ = ["columns", "ledger_of", "row", "write_lines"]

_NEUTRAL: Final[dict[str, Any]] = {"string": "", "long": 0, "double": 0.0}
_UNTOLD: Final[dict[str, Any]] = {
    "schema": SCHEMA,
    "cluster_id": "cluster",
    "proxy_id": "proxy",
    "weight": 1.0,
    "exchanges": 1,
    "fetches": 1,
    "connection_id": 0,
    "client_fetches": 1,
}


def row(record: str, **fields: Any) -> Row:
    """Return a row with every column of *record*: *fields*, and otherwise 0, an empty text, or null if allowed.

    Raises: KeyError: *record* does not have one of the columns.
    """
    columns = {column.name: _neutral(column) for column in RECORDS[record]}
    columns |= {name: value for name, value in _UNTOLD.items() if name in columns}
    for name, value in {"record": record, **fields}.items():
        if name not in columns:
            raise KeyError(f"{record} has no column {name}")
        columns[name] = value
    return columns


def write_lines(path: Path, lines: Iterable[str]) -> Path:
    """A file of the ledger, in a folder that is made where there is none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def ledger_of(spark: SparkSession, *rows: Row) -> LedgerFrames:
    """Return *rows* by their record, as the ledger is read."""

    def frame(record: str) -> DataFrame:
        found = [_tuples(RECORDS[record], each) for each in rows if each["record"] == record]
        return spark.createDataFrame(found, SCHEMAS[record])

    return LedgerFrames(**{record: frame(record) for record in RECORDS})


def columns(schema: StructType) -> list[tuple[str, str]]:
    """Names and types, whatever may be null."""
    return [(field.name, field.dataType.simpleString()) for field in schema]


def _neutral(column: LedgerColumn) -> Any:
    if column.kind == "array":
        return []
    return None if column.is_optional else _NEUTRAL[column.kind]


def _tuples(columns: tuple[LedgerColumn, ...], fields: Row) -> tuple[Any, ...]:
    return tuple(
        [_tuples(column.items, each) for each in fields[column.name]]
        if column.kind == "array"
        else fields.get(column.name, _neutral(column))
        for column in columns
    )
