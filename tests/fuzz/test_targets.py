"""The short form: each target's seeds, and some inputs more, the same every time."""

import pytest

from tests.fuzz import conversations, harness, targets

ALL = (*targets.TARGETS, *conversations.TARGETS)
SECONDS = 0.6
"""For each, and its seeds on top."""
MOST = 3000
SEED = 7


@pytest.mark.parametrize("target", ALL, ids=lambda target: target.name)
def test_hostile_bytes_do_no_more_than_they_may(target: harness.Target) -> None:
    ran = harness.run(target, seed=SEED, inputs=MOST, seconds=SECONDS)

    assert ran.inputs > 100
    assert ran.outcomes > 5, "it is always the same that comes of it"
    assert 0 < ran.refused < ran.inputs or not target.documented
