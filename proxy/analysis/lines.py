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

__all__ = ["BAD", "BAD_ROWS", "KEY", "WIDE", "parsed"]

BAD: Final = "bad"
"""What stands for the record of a bad row."""

BAD_ROWS: Final = StructType([StructField(name, StringType()) for name in ("row", "reason", "file")])
"""The text; what is wrong with it; the file that it was in, or the topic, partition and offset."""

_TOLD: Final = StructType(list({field.name: field for schema in SCHEMAS.values() for field in schema}.values()))
"""The columns of all records. None has two types."""

WIDE: Final = StructType([*_TOLD, BAD_ROWS["row"], BAD_ROWS["file"]])
"""Rows of all records in one frame, bad ones as well, whose record is ``BAD``. What a record has not is null."""

KEY: Final = ("record", "proxy_id", "seq", "seq_first", "file", "row")
"""Tells the rows of ``WIDE`` apart: one that has come twice is the same in it. A file and a topic can lose
different rows up to the same one, hence ``seq_first``. Bad rows have the last two only, good ones never."""

_CORRUPT: Final = "_corrupt"
"""Is the whole line where it is not JSON, or a column has another type."""
_PARSING: Final = {
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_LAST_US: Final = 253_402_300_800_000_000 - 1
"""Of the year 9999, after which a day has no name."""

_NEXT_ROW: Final = r'\}\s*\{\s*"\w+"\s*:'
"""Where an object of JSON follows another: in a text the quote would have a backslash before it."""


def parsed(lines: DataFrame) -> DataFrame:
    """What *lines* (``value``: a text; ``file``: where it was) say, as ``WIDE``; empty ones say nothing."""
    schema = StructType([*_TOLD, StructField(_CORRUPT, StringType())])
    # A struct's columns would each be the parsing itself to what filters by them; those of a generator are not.
    told = F.inline(F.array(F.from_json("value", schema, _PARSING)))
    judged = lines.where(F.trim("value") != "").select("value", "file", told)
    judged = judged.withColumn("wrong", F.when(~_is_good(), _reason()))
    is_bad = F.col("wrong").isNotNull()
    of_bad = {"record": F.lit(BAD), "reason": F.col("wrong"), "row": F.col("value"), "file": F.col("file")}
    of_bad |= {name: F.lit(None) for name in ("at_us", "cluster_id", *KEY) if name not in of_bad}
    of_good = {"row": F.lit(None), "file": F.lit(None)}
    changed = {
        name: F.when(is_bad, value).otherwise(of_good.get(name, F.col(name))).alias(name)
        for name, value in of_bad.items()
    }
    return judged.select(*(changed.get(name, F.col(name)) for name in WIDE.names))


def _is_good() -> Column:
    """Never null. It is asked of each row, so it is brief: a method of more than 8,000 bytes is not compiled."""
    common = {column.name for column in ledger.COMMON}
    of_records = [
        reduce(and_, map(_is_right, columns[len(common) :]), F.col("record") == record)
        for record, columns in ledger.RECORDS.items()
    ]
    is_row = F.col(_CORRUPT).isNull() & ~_is_followed() & (F.col("schema") == ledger.SCHEMA)
    is_common = reduce(and_, map(_is_right, ledger.COMMON)) & _is_time() & _is_weight()
    return F.coalesce(is_row & is_common & _has_texts() & reduce(or_, of_records), F.lit(False))


def _is_right(column: ledger.LedgerColumn) -> Column:
    """Whether *column* is null only if it may be."""
    value = F.col(column.name)
    if column.kind == "array":
        return value.isNotNull() & ~F.exists(value, _lacks(column.items))
    return F.lit(True) if column.is_optional else value.isNotNull()


def _has_texts() -> Column:
    """Whether texts are texts. As a rule the first look at each tells."""
    columns = {column.name: column for columns in ledger.RECORDS.values() for column in columns}
    texts = [name for name, column in columns.items() if column.kind == "string"]
    are_told = (F.col(name).isNull() | F.col("value").contains(f'"{name}":"') for name in texts)
    right = reduce(and_, are_told) | ~_is_told("|".join(texts), '"')
    for name, column in columns.items():
        items = [item.name for item in column.items if item.kind == "string"]
        if items:
            right &= F.col(name).isNull() | (F.size(name) == 0) | ~_is_told("|".join(items), '"')
    return right


def _is_time() -> Column:
    return F.col("at_us").between(0, _LAST_US)


def _is_weight() -> Column:
    return (F.col("weight") > 0) & (F.col("weight") < float("inf"))


def _reason() -> Column:
    """What is wrong with a row that is not good."""
    record, schema = F.col("record"), F.col("schema")
    is_json = F.col(_CORRUPT).isNull() | F.expr("try_parse_json(value)").isNotNull()
    newer = f"schema: %d is newer than {ledger.SCHEMA}: upgrade the Sidefetch that reads it"
    unknown = f"record: '%s' is not one of {', '.join(ledger.RECORDS)}"
    reason = (
        F.when(~is_json | ~F.ltrim("value").startswith("{"), "not an object of JSON, or cut off")
        .when(_is_followed(), "something follows the row in its line")
        .when(schema > ledger.SCHEMA, F.format_string(newer, schema))
        .when(schema.isNull() | (schema < ledger.SCHEMA), f"schema: missing, or not {ledger.SCHEMA}")
        .when(record.isNull(), "record: missing or null")
        .when(~record.isin(*ledger.RECORDS), F.format_string(unknown, record))
    )
    for name, columns in ledger.RECORDS.items():
        problems = F.concat_ws("; ", *(F.when(wrong, what) for wrong, what in _wrong_columns(columns)))
        reason = reason.when(record == name, problems)
    return reason


def _is_followed() -> Column:
    """Whether a line goes on after its object: Spark's parser says nothing of what follows."""
    value = F.col("value")
    may_have_two = value.contains("}{") | (F.locate('"record"', value, 12) > 0)
    return ~F.rtrim(value).endswith("}") | (may_have_two & value.rlike(_NEXT_ROW))


def _wrong_columns(columns: Iterable[ledger.LedgerColumn]) -> Iterator[tuple[Column, str]]:
    """What makes *columns* wrong, each with the words for it.

    What has another type was parsed as null, but for texts, which Spark makes of anything.
    """
    for column in columns:
        name, value = column.name, F.col(column.name)
        if not column.is_optional:
            yield value.isNull(), f"{name}: missing, null or not of type {column.kind}"
        elif column.kind != "string":
            yield value.isNull() & _is_told(name), f"{name}: not of type {column.kind}"
        if column.kind == "string":
            yield _is_told(name, '"'), f"{name}: not of type string"
        if column.kind == "array":
            texts = "|".join(item.name for item in column.items if item.kind == "string")
            is_no_text = _is_told(texts, '"') if texts else F.lit(False)
            yield (
                value.isNotNull() & (F.exists(value, _lacks(column.items)) | is_no_text),
                f"{name}: has a wrong item",
            )
    yield ~_is_time(), "at_us: not from 1970 to 9999"
    yield ~_is_weight(), "weight: not a weight"


def _is_told(names: str, but: str = "") -> Column:
    """Whether the text has something other than null for one of *names*, beginning with none of *but*."""
    return F.col("value").rlike(rf'"({names})"\s*:\s*[^n\s{but}]')


def _lacks(columns: Iterable[ledger.LedgerColumn]) -> Callable[[Column], Column]:
    """Whether an item of an array is null, or lacks one of *columns*."""
    needed = [column.name for column in columns if not column.is_optional]
    return lambda item: reduce(or_, (item[name].isNull() for name in needed), item.isNull())
