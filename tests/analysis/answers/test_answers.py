from pyspark.sql import SparkSession

from proxy.analysis.answers import ANSWERS, RESULTS
from tests.analysis.rows import columns, ledger_of


def test_every_answer_has_its_declared_columns(spark: SparkSession) -> None:
    nothing = ledger_of(spark)

    answered = {name: answer(nothing).schema for name, answer in ANSWERS.items()}

    assert {name: columns(schema) for name, schema in answered.items()} == {
        name: columns(schema) for name, schema in RESULTS.items()
    }
