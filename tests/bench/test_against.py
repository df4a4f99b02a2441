"""The verdict on a figure of two versions follows from the median of the ratios and its interval."""

import pytest

from tests.bench.against import Comparison


def comparison(*ratios: float, is_rate: bool = True) -> Comparison:
    return Comparison("case", "MB/s", [100.0] * len(ratios), [100 * ratio for ratio in ratios], is_rate)


def test_interval_leaves_out_the_lowest_and_the_highest_ratio() -> None:
    found = comparison(1.0, 0.5, 1.02, 0.98, 1.5, 1.0, 1.01, 0.99, 1.0, 1.0)
    assert found.median == pytest.approx(1.0)
    assert found.interval == pytest.approx((0.98, 1.02))


@pytest.mark.parametrize(
    ("ratios", "is_rate", "verdict"),
    [
        ([0.99, 1.0, 1.0, 1.01, 1.02], True, "as before"),
        ([0.96, 0.97, 0.98, 0.98, 0.99], True, "as before"),
        ([0.90, 0.92, 0.94, 0.95, 0.99], True, "worse"),
        ([1.05, 1.06, 1.08, 1.09, 1.20], False, "worse"),
        ([1.05, 1.06, 1.08, 1.09, 1.20], True, "better"),
        ([0.80, 0.85, 0.94, 1.05, 1.20], True, "unclear"),
    ],
)
def test_verdict_follows_from_median_and_interval(ratios: list[float], is_rate: bool, verdict: str) -> None:
    assert comparison(*ratios, is_rate=is_rate).verdict == verdict
