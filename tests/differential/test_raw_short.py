"""The short form of the raw generator: sequences of fixed seeds, through Sidefetch and directly, for a minute."""

import time
from collections.abc import Sequence
from typing import Final

import pytest

from tests.differential.raw.run import Runner
from tests.differential.raw.sequence import draw
from tests.differential.raw.stage import staged
from tests.prerequisites import require

pytestmark = pytest.mark.kafka

VERSION: Final = "4.3.1"
SECONDS: Final = 15.0


def check(seeds: Sequence[int], *, direct: bool = False, tags: bool = False) -> None:
    """Run the sequences of *seeds* for up to 15 s. Raises: AssertionError: one has violations; it lists them."""
    require("java", "maven")
    with staged(VERSION, direct=direct, tags=tags) as (stage, _):
        deadline = time.monotonic() + SECONDS
        for seed in seeds:
            outcome = Runner(stage, draw(seed)).run()
            assert not outcome.violations, "\n".join(
                [f"seed {seed}", *map(str, outcome.violations), *outcome.history]
            )
            if time.monotonic() > deadline:
                break


def test_raw_sequences_through_sidefetch_have_no_violations() -> None:
    check(range(1, 100))


@pytest.mark.long
def test_raw_sequences_have_no_violations_when_brokers_add_unknown_tags() -> None:
    check(range(101, 200), tags=True)


@pytest.mark.long
def test_judge_finds_no_violation_in_responses_of_broker_itself() -> None:
    check(range(201, 300), direct=True)
