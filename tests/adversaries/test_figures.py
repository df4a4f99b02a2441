"""The kept figures are of all attacks, and no honest client lost anything."""

import pytest

from tests.adversaries.attacks import ATTACKS
from tests.adversaries.figures import kept
from tests.adversaries.trial import MOST_MEMORY_MIB

TRIALS = {each["attack"]: each for each in kept()["trials"]}


def test_figures_are_of_all_attacks() -> None:
    assert list(TRIALS) == list(ATTACKS)


@pytest.mark.parametrize("attack", ATTACKS)
def test_honest_clients_were_served_within_the_charts_memory(attack: str) -> None:
    trial = TRIALS[attack]

    assert trial["failures"] == 0
    assert trial["records"] > 0
    assert trial["livez_ms"] <= 1_000
    assert trial["peak_mib"] <= MOST_MEMORY_MIB
