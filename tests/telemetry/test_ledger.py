"""The definition of the ledger: complete, documented, and able to check a row."""

import pytest

from proxy.telemetry.ledger import COMMON, RECORDS, LedgerColumn, problems
from proxy.telemetry.rows import RowMaker
from tests.telemetry.asked import Asker, exchange, wall_us

ALL = [(record, column) for record, columns in RECORDS.items() for c in columns for column in (c, *c.items)]


def test_each_row_begins_with_the_same_columns() -> None:
    assert all(columns[: len(COMMON)] == COMMON for columns in RECORDS.values())
    assert all(len({column.name for column in columns}) == len(columns) for columns in RECORDS.values())


@pytest.mark.parametrize(("record", "column"), ALL, ids=lambda value: getattr(value, "name", value))
def test_column_declares_unit_and_meaning(record: str, column: LedgerColumn) -> None:
    assert column.meaning.endswith("."), record
    for ending, unit in (("_bytes", "bytes"), ("at_us", "us since 1970")):
        assert not column.name.endswith(ending) or column.unit == unit
    assert bool(column.items) == (column.kind == "array")
    assert column.fold != "sum" or (column.kind == "long" and column.unit)


def test_a_good_row_has_no_problems() -> None:
    row = RowMaker("p", "a", wall_us).make_row(Asker(), exchange(), 11.0)

    assert row is not None
    assert not list(problems(row))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"record": "exchanges"}, "record: 'exchanges' is not one of"),
        ({"extra": 1}, "extra: unknown"),
        ({"wanted": "3"}, "wanted: '3' is not a long"),
        ({"wanted": None}, "wanted: null"),
        ({"weight": 1}, "weight: 1 is not a double"),
        ({"sources": {}}, "sources: {} is not an array"),
        ({"errors": [{"code": 3}]}, "errors[0].n: missing"),
    ],
)
def test_a_bad_row_has_problems(change: dict[str, object], problem: str) -> None:
    row = RowMaker("p", "a", wall_us).make_row(Asker(), exchange(), 11.0)

    assert row is not None
    assert any(reported.startswith(problem) for reported in problems(row | change))


def test_a_missing_column_is_a_problem() -> None:
    row = RowMaker("p", "a", wall_us).make_row(Asker(), exchange(), 11.0)

    assert row is not None
    del row["seq"]
    assert list(problems(row)) == ["seq: missing"]
