"""The verdict of a trial names each bound that does not hold."""

from typing import Any

import attrs
import pytest

from tests.adversaries.trial import Felt, Verdict

GOOD = Verdict(
    "x",
    before=Felt([0.01] * 100, [0.01] * 20, [0.02], [], [0.01], 60),
    during=Felt([0.02] * 100, [0.02] * 20, [0.03], [], [0.02], 200),
    rested_mib=60,
    left_mib=70,
)


def test_trial_within_all_bounds_has_no_problem() -> None:
    assert GOOD.problems == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"failures": ["fetch v2: error 6"]}, "1 requests failed, first: fetch v2: error 6"),
        ({"waits_s": [0.01] * 98 + [0.3] * 2}, "p99 300 ms"),
        ({"waits_s": []}, "p99 inf ms"),
        ({"arrivals_s": [0.5] * 20}, "new clients 500 ms"),
        ({"large_s": [0.1, 5.5]}, "a large request took 5.5 s"),
        ({"large_s": []}, "a large request took inf s"),
        ({"alive_s": [0.1, 1.5]}, "/livez took 1.5 s"),
        ({"alive_s": []}, "/livez took inf s"),
        ({"peak_mib": 225}, "225 MiB resident"),
    ],
)
def test_bound_that_does_not_hold_during_the_attack_is_named(change: dict[str, Any], words: str) -> None:
    verdict = attrs.evolve(GOOD, during=attrs.evolve(GOOD.during, **change))
    assert [words in each for each in verdict.problems] == [True]


def test_process_that_the_kernel_ended_is_named() -> None:
    assert attrs.evolve(GOOD, kills=1).problems == ["the kernel ended Sidefetch, which needed over 224 MiB"]


def test_memory_that_remains_is_named() -> None:
    assert attrs.evolve(GOOD, left_mib=73).problems == ["73 MiB remain, 60 before"]
