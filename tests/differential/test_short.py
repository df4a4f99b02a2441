"""The short form of the differential test: fixed seeds, each client once, on the newest Kafka."""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.differential.__main__ import run_surely
from tests.differential.combinations import CLIENTS, draw
from tests.differential.stage import Stage
from tests.prerequisites import require

pytestmark = pytest.mark.kafka

KAFKA: Final = "4.3.1"
_SHORT: Final = {
    "aiokafka",
    "franz-go",
    "java-0.9.0.1",
    "java-4.4.0",
    "kafka-python-1.4.7-as-0.8.2",
    "kafkajs",
    "librdkafka",
    "sarama",
}
"""One client of each library."""


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    require("java", "maven")
    with Stage(KAFKA) as found:
        yield found


@pytest.mark.parametrize(
    "client", [each if each in _SHORT else pytest.param(each, marks=pytest.mark.long) for each in CLIENTS]
)
def test_client_reads_through_sidefetch_as_it_does_directly(stage: Stage, client: str) -> None:
    trial, _ = run_surely(stage, draw("short/1", KAFKA, [client]))
    assert trial.verdict.outcome == "passed", f"{trial.combination}: {trial.verdict}"
