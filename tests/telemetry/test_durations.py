import math

from proxy.telemetry.durations import BOUNDS_S, Durations, delay_s
from tests.telemetry.records import exchange


def test_each_duration_is_in_the_bucket_of_the_next_bound_and_all_above() -> None:
    durations = Durations()
    for duration_s in (0.0, 0.001, 0.0011, 31.0):
        durations.add(duration_s)

    found = dict(durations.cumulative())

    assert list(found) == [*BOUNDS_S, math.inf]
    assert (found[0.0005], found[0.001], found[0.0025], found[30.0], found[math.inf]) == (1, 2, 3, 3, 4)
    assert durations.total_s == 31.0021


def test_poll_wait_is_excluded_from_delay() -> None:
    record = exchange(waited_us=(("poll", 500_000), ("broker", 1_000), ("write", 500)))

    assert delay_s(record) == 0.0015
