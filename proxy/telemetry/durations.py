"""A histogram of the delays of client fetches, with buckets as in OpenTelemetry and Prometheus."""

import math
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

import attrs

from proxy.events import ExchangeRecord

__all__ = ["BOUNDS_S", "Durations", "delay_s"]

BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""The upper bound of each bucket but the last, in seconds. Sidefetch itself adds less than a millisecond."""


def delay_s(record: ExchangeRecord) -> float:
    """Return the seconds from a client fetch to the end of its response, without the wait for new records."""
    return sum(us for cause, us in record.waited_us if cause != "poll") / 1e6


@attrs.define
class Durations:
    """A histogram: the number of durations in each bucket of ``BOUNDS_S``, and the sum of all durations."""

    total_s: float = 0.0
    """The sum of all durations, in seconds."""
    _counts: list[int] = attrs.field(factory=lambda: [0] * (len(BOUNDS_S) + 1), init=False)

    def add(self, duration_s: float) -> None:
        self.total_s += duration_s
        self._counts[bisect_left(BOUNDS_S, duration_s)] += 1

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Return a pair for each bucket: its upper bound in seconds, and the number of durations up to that bound.

        The last bound is infinity, so its number is that of all durations.
        """
        return zip((*BOUNDS_S, math.inf), accumulate(self._counts), strict=True)
