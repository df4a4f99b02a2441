"""A ledger's lines of JSON as rows, held to the ledger's definition; what is wrong is kept aside, with the reason.

A row is good if it has each column of its record, of its type, and null only where the ledger allows it. Then:

* A column that nobody here knows is a newer writer's, and left out: a new column leaves the schema's number.
* A column that may be null may be missing: older rows lack what was added later, so what is added must be one.
* A higher schema takes a newer Sidefetch to be read. Lower ones, once there are any, are brought up to date here.
* A number in the place of a text is as wrong as the other way round.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from operator import and_, or_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from proxy.analysis.schemas import SCHEMAS
from proxy.telemetry import ledger

__all__ = ["BAD", "BAD_ROWS", "WIDE", "parsed"]

BAD: Final = "bad"
"""What stands for the record of a bad row."""

BAD_ROWS: Final = StructType([StructField(name, StringType()) for name in ("row", "reason", "file")])
"""The text; what is wrong with it; the file that it was in, or the topic, partition and offset."""

_TOLD: Final = StructType(list({field.name: field for schema in SCHEMAS.values() for field in schema}.values()))
"""The columns of all records. None has two types."""

WIDE: Final = StructType([*_TOLD, BAD_ROWS["row"], BAD_ROWS["file"]])
"""Rows of all records in one frame, bad ones as well, whose record is ``BAD``. What a record has not is null."""

_CORRUPT: Final = "_corrupt"
"""Is the whole line where it is not JSON, or a column has another type."""
_PARSING: Final = {
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_LAST_US: Final = 253_402_300_800_000_000 - 1
"""Of the year 9999, after which a day has no name."""

# In texts of JSON a quote has a backslash before it, so these find no text that merely looks like it.
_NEXT_ROW: Final = r'\}\s*\{\s*"\w+"\s*:|[^}\s]\s*$'
"""Spark parses the first value of a line, and says nothing of what follows."""


def _texts() -> Iterator[str]:
    for columns in ledger.RECORDS.values():
        for column in columns:
            yield from (each.name for each in (column, *column.items) if each.kind == "string")


_NO_TEXT: Final = rf'"({"|".join(sorted(set(_texts())))})"\s*:\s*[^"n\s]'
"""Spark takes anything for a text."""


def parsed(lines: DataFrame) -> DataFrame:
    """What *lines* (``value``: a text; ``file``: where it was) say, as ``WIDE``; empty ones say nothing."""
    schema = StructType([*_TOLD, StructField(_CORRUPT, StringType())])
    # A struct's columns would each be the parsing itself to what filters by them; those of a generator are not.
    told = F.inline(F.array(F.from_json("value", schema, _PARSING)))
    judged = lines.where(F.trim("value") != "").select("value", "file", told)
    judged = judged.withColumn("wrong", F.when(~_is_good(), _reason()))
    is_bad = F.col("wrong").isNotNull()
    columns = {
        "record": F.when(is_bad, BAD).otherwise(F.col("record")),
        "reason": F.coalesce("wrong", "reason"),
        "row": F.when(is_bad, F.col("value")),
        "file": F.when(is_bad, F.col("file")),
    }
    return judged.select(*(columns.get(name, F.col(name)).alias(name) for name in WIDE.names))


def _is_good() -> Column:
    """Never null; quick, since it is asked of each row."""
    of_records = [
        reduce(and_, (~wrong for wrong, _ in _wrong_columns(columns)), F.col("record") == record)
        for record, columns in ledger.RECORDS.items()
    ]
    return F.coalesce(
        F.col(_CORRUPT).isNull()
        & ~F.col("value").rlike(_NEXT_ROW)
        & ~F.col("value").rlike(_NO_TEXT)
        & (F.col("schema") == ledger.SCHEMA)
        & reduce(or_, of_records),
        F.lit(False),
    )


def _reason() -> Column:
    """What is wrong with a row that is not good."""
    record, schema = F.col("record"), F.col("schema")
    known = ", ".join(ledger.RECORDS)
    is_json = F.col(_CORRUPT).isNull() | F.expr("try_parse_json(value)").isNotNull()
    reason = (
        F.when(~is_json | ~F.ltrim("value").startswith("{"), "not an object of JSON, or cut off")
        .when(F.col("value").rlike(_NEXT_ROW), "something follows the row in its line")
        .when(
            schema > ledger.SCHEMA,
            F.format_string(
                f"schema: %d is newer than {ledger.SCHEMA}: upgrade the Sidefetch that reads it", schema
            ),
        )
        .when(schema.isNull() | (schema < ledger.SCHEMA), f"schema: missing, or not {ledger.SCHEMA}")
        .when(record.isNull(), "record: missing or null")
        .when(~record.isin(*ledger.RECORDS), F.format_string(f"record: '%s' is not one of {known}", record))
    )
    for name, columns in ledger.RECORDS.items():
        problems = F.concat_ws("; ", *(F.when(wrong, what) for wrong, what in _wrong_columns(columns)), _no_text())
        reason = reason.when((record == name) & (problems != ""), problems)
    return reason.otherwise("a column that may be null has another type")


def _no_text() -> Column:
    name = F.regexp_extract("value", _NO_TEXT, 1)
    return F.when(name != "", F.concat(name, F.lit(": not a string")))


def _wrong_columns(columns: Iterable[ledger.Column]) -> Iterator[tuple[Column, str]]:
    """For each column what makes it wrong (never null), and the words for it. A wrong type was parsed as null."""
    for column in columns:
        value = F.col(column.name)
        if not column.is_optional:
            yield value.isNull(), f"{column.name}: missing, null or not of type {column.kind}"
        if column.kind == "array":
            yield (
                F.coalesce(F.exists(value, _lacks(column.items)), F.lit(False)),
                f"{column.name}: has a wrong item",
            )
    yield ~F.coalesce(F.col("at_us").between(0, _LAST_US), F.lit(True)), "at_us: not from 1970 to 9999"
    yield ~F.coalesce((F.col("weight") > 0) & (F.col("weight") < float("inf")), F.lit(True)), "weight: not a weight"


def _lacks(columns: Iterable[ledger.Column]) -> Callable[[Column], Column]:
    """Whether an item of an array is null, or lacks one of *columns*."""
    needed = [column.name for column in columns if not column.is_optional]
    return lambda item: reduce(or_, (item[name].isNull() for name in needed), item.isNull())
