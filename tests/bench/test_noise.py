"""The report of the machine's noise."""

from tests.bench.noise import Loops, Noise, observed, stolen_share

BEFORE = "cpu  100 0 50 800 10 0 5 20 0 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n"
AFTER = "cpu  150 0 70 900 10 0 5 50 90 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n"


def test_stolen_share_counts_guest_time_once() -> None:
    assert stolen_share(BEFORE, AFTER) == 30 / 200
    assert stolen_share(BEFORE, BEFORE) == 0


def test_loop_times_are_reported_as_median_p95_and_maximum() -> None:
    loops = Loops.of([20.0] * 18 + [30.0, 90.0])

    assert (loops.median_ms, loops.p95_ms, loops.most_ms) == (20, 30, 90)
    assert str(Noise(loops, loops, 0.0125)) == (
        "a loop took 20 ms, 95 % within 30 ms, at most 90 ms before, "
        "20 ms, 95 % within 30 ms, at most 90 ms after; 1.25% of the CPU was stolen"
    )


def test_loops_run_before_and_after() -> None:
    with observed() as noise:
        pass

    assert 0 < noise().before.median_ms <= noise().before.most_ms
    assert 0 < noise().after.median_ms <= noise().after.most_ms
    assert 0 <= noise().steal <= 1
