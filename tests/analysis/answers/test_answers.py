from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from proxy.analysis.answers import ANSWERS, RESULTS
from tests.analysis.rows import ledger_of


def test_every_answer_has_the_columns_that_it_declares(spark: SparkSession) -> None:
    nothing = ledger_of(spark)

    answered = {name: answer(nothing).schema for name, answer in ANSWERS.items()}

    assert {name: _columns(schema) for name, schema in answered.items()} == {
        name: _columns(schema) for name, schema in RESULTS.items()
    }


def _columns(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema]
