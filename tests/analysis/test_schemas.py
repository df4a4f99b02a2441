from pyspark.sql import SparkSession

from proxy.analysis.schemas import SCHEMAS
from proxy.telemetry.ledger import RECORDS, problems
from tests.analysis.rows import ledger_of, row


def test_each_record_of_the_ledger_has_its_columns_in_order() -> None:
    assert {record: schema.names for record, schema in SCHEMAS.items()} == {
        record: [column.name for column in columns] for record, columns in RECORDS.items()
    }


def test_items_of_arrays_are_typed_too() -> None:
    assert SCHEMAS["exchange"]["errors"].dataType.simpleString() == "array<struct<code:bigint,n:bigint>>"
    assert SCHEMAS["exchange"]["weight"].dataType.simpleString() == "double"


def test_a_row_by_hand_is_one_of_the_ledger() -> None:
    for record in RECORDS:
        assert list(problems(row(record))) == []


def test_a_ledger_by_hand_has_its_rows(spark: SparkSession) -> None:
    ledger = ledger_of(spark, row("exchange", errors=[{"code": 3, "n": 2}]), row("fetch", fetcher="live"))

    (exchange,) = ledger.exchange.collect()
    assert exchange["errors"][0].asDict() == {"code": 3, "n": 2}
    assert [each["fetcher"] for each in ledger.fetch.collect()] == ["live"]
    assert ledger.session.isEmpty()
