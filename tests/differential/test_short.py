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


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    require("java", "maven")
    with Stage(KAFKA) as found:
        yield found


@pytest.mark.parametrize("client", CLIENTS)
def test_client_reads_through_sidefetch_as_it_does_directly(stage: Stage, client: str) -> None:
    trial, _ = run_surely(stage, draw("short/1", KAFKA, [client]))
    assert trial.verdict.outcome == "passed", f"{trial.combination}: {trial.verdict}"
