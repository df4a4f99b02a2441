"""Parse the ledger's JSON lines into rows, check them against its definition, and keep bad rows with a reason.

A row is good if it has all columns of its record with the right types, and nulls only where the ledger allows
them. In detail:

* An unknown column comes from a newer Sidefetch and is left out; a new column does not change the schema number.
* An optional column may be missing, because older rows lack columns that were added later. Hence added columns must
  be optional.
* A row with a higher schema number is bad: a newer Sidefetch must read it. Lower numbers do not exist yet; this
  module will have to convert them.
* A number in place of a text is an error, and a text in place of a number, too.
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

__all__ = ["BAD", "BAD_ROWS", "KEY", "WIDE", "parse_lines"]

BAD: Final = "bad"
"""The ``record`` value of bad rows."""

BAD_ROWS: Final = StructType([StructField(name, StringType()) for name in ("row", "reason", "file")])
"""The columns of bad rows: their text, the reason, and the file, or topic/partition@offset, of the line."""

_COLUMNS: Final = StructType(list({field.name: field for schema in SCHEMAS.values() for field in schema}.values()))
"""The columns of all records. A column that several records have is of the same type in all of them."""

WIDE: Final = StructType([*_COLUMNS, BAD_ROWS["row"], BAD_ROWS["file"]])
"""The schema of a frame with the rows of all record types and the bad rows (record ``BAD``). Columns that a record
type does not have are null."""

KEY: Final = ("record", "proxy_id", "seq", "seq_first", "file", "row")
"""The columns that identify a row of ``WIDE``: duplicates are equal in them. ``seq_first`` is needed because the
losses of a file and of a topic can end at the same ``seq`` but begin at different ones. ``file`` and ``row``
identify bad rows; good rows do not have them."""

_CORRUPT: Final = "_corrupt"
"""The column with the whole line if it is not JSON or a column has the wrong type; else null."""
_PARSING: Final = {
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_LAST_US: Final = 253_402_300_800_000_000 - 1
"""The last microsecond of the year 9999, the last one that Spark's dates can represent."""

_NEXT_ROW: Final = r'\}\s*\{\s*"\w+"\s*:'
"""Matches the start of a second JSON object. It never matches within a text, where a backslash precedes a quote."""


def parse_lines(lines: DataFrame) -> DataFrame:
    """Parse JSON lines of a ledger into rows with the columns of ``WIDE``; turn invalid lines into bad rows.

    *lines* has the columns ``value``, the text of a line, and ``file``, its file or topic/partition@offset. A bad
    row has ``record`` = ``bad``, the line in ``row``, the ``reason`` and the ``file``; its time, cluster,
    ``proxy_id`` and ``seq`` are null. Valid rows of all record types have null ``row`` and ``file``. Empty lines
    are dropped.
    """
    schema = StructType([*_COLUMNS, StructField(_CORRUPT, StringType())])
    # Spark would parse again for each struct column that a filter uses; it does not for a generator's columns.
    row_column = F.inline(F.array(F.from_json("value", schema, _PARSING)))
    judged = lines.where(F.trim("value") != "").select("value", "file", row_column)
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
    """Return the condition that a row is valid. The condition is never null.

    It is short because it runs for each row, and the JVM does not compile a method of more than 8,000 bytes.
    """
    common = {column.name for column in ledger.COMMON}
    of_records = [
        reduce(and_, map(_is_right, columns[len(common) :]), F.col("record") == record)
        for record, columns in ledger.RECORDS.items()
    ]
    is_row = F.col(_CORRUPT).isNull() & ~_is_followed() & (F.col("schema") == ledger.SCHEMA)
    is_common = reduce(and_, map(_is_right, ledger.COMMON)) & _is_time() & _is_weight()
    return F.coalesce(is_row & is_common & _has_texts() & reduce(or_, of_records), F.lit(False))


def _is_right(column: ledger.LedgerColumn) -> Column:
    """Return the condition that *column* is not null, unless it is optional.

    For an array, each item must have its required columns, too.
    """
    value = F.col(column.name)
    if column.kind == "array":
        return value.isNotNull() & ~F.exists(value, _lacks(column.items))
    return F.lit(True) if column.is_optional else value.isNotNull()


def _has_texts() -> Column:
    """Return the condition that all text columns have JSON texts as values, and not numbers, for example.

    For most rows a cheap search for ``"name":"`` in the line decides; otherwise regular expressions do.
    """
    columns = {column.name: column for columns in ledger.RECORDS.values() for column in columns}
    texts = [name for name, column in columns.items() if column.kind == "string"]
    are_texts = (F.col(name).isNull() | F.col("value").contains(f'"{name}":"') for name in texts)
    right = reduce(and_, are_texts) | ~_is_present("|".join(texts), '"')
    for name, column in columns.items():
        items = [item.name for item in column.items if item.kind == "string"]
        if items:
            right &= F.col(name).isNull() | (F.size(name) == 0) | ~_is_present("|".join(items), '"')
    return right


def _is_time() -> Column:
    return F.col("at_us").between(0, _LAST_US)


def _is_weight() -> Column:
    return (F.col("weight") > 0) & (F.col("weight") < float("inf"))


def _reason() -> Column:
    """Return the description of the errors of a bad row."""
    record, schema = F.col("record"), F.col("schema")
    is_json = F.col(_CORRUPT).isNull() | F.expr("try_parse_json(value)").isNotNull()
    newer = f"schema: %d is newer than {ledger.SCHEMA}: upgrade the Sidefetch that reads it"
    unknown = f"record: '%s' is not one of {', '.join(ledger.RECORDS)}"
    reason = (
        F.when(~is_json | ~F.ltrim("value").startswith("{"), "not a JSON object, or truncated")
        .when(_is_followed(), "more text follows the row on its line")
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
    """Return the condition that more text follows the object on its line, which Spark's parser ignores."""
    value = F.col("value")
    may_have_two = value.contains("}{") | (F.locate('"record"', value, 12) > 0)
    return ~F.rtrim(value).endswith("}") | (may_have_two & value.rlike(_NEXT_ROW))


def _wrong_columns(columns: Iterable[ledger.LedgerColumn]) -> Iterator[tuple[Column, str]]:
    """Yield the error conditions of *columns*, each with its description.

    Spark parses a value of the wrong type as null; but for a text column it converts any value to a text.
    """
    for column in columns:
        name, value = column.name, F.col(column.name)
        if not column.is_optional:
            yield value.isNull(), f"{name}: missing, null or not of type {column.kind}"
        elif column.kind != "string":
            yield value.isNull() & _is_present(name), f"{name}: not of type {column.kind}"
        if column.kind == "string":
            yield _is_present(name, '"'), f"{name}: not of type string"
        if column.kind == "array":
            texts = "|".join(item.name for item in column.items if item.kind == "string")
            is_no_text = _is_present(texts, '"') if texts else F.lit(False)
            yield (
                value.isNotNull() & (F.exists(value, _lacks(column.items)) | is_no_text),
                f"{name}: has an invalid item",
            )
    yield ~_is_time(), "at_us: not between 1970 and 9999"
    yield ~_is_weight(), "weight: not positive and finite"


def _is_present(names: str, but: str = "") -> Column:
    """Return the condition that one of *names* has a value that is not null and starts with none of *but*.

    The condition matches the text of the line with a regular expression, not the parsed values.
    """
    return F.col("value").rlike(rf'"({names})"\s*:\s*[^n\s{but}]')


def _lacks(columns: Iterable[ledger.LedgerColumn]) -> Callable[[Column], Column]:
    """Return a function from an array item to the condition that it is null or lacks a required column."""
    needed = [column.name for column in columns if not column.is_optional]
    return lambda item: reduce(or_, (item[name].isNull() for name in needed), item.isNull())
