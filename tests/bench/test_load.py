"""Figures computed from the readings of the meters."""

from tests.bench.load import BROKER_CPU, BYTES, FETCHES, OWN_CPU, P50, P99, Cost, Heard

COST = Cost(
    seconds=10, broker_cpu_s=1.5, own_cpu_s=0.2, counted_s=12, fetches=24, bytes=1200, bytes_sent=1000, sessions=3
)


def test_rates_use_own_periods_and_exclude_idle_broker_cpu() -> None:
    assert COST.a_second(0.05) == {FETCHES: 2, BYTES: 100, BROKER_CPU: 100, OWN_CPU: 20}


def test_a_broker_that_was_less_busy_than_idle_used_nothing() -> None:
    assert COST.own_share(0.5) == 0


def test_delivery_since_given_time_excludes_earlier_records() -> None:
    heard = Heard(5, [(1_000, 900_000), *((5_000 + each, 15_000 + each * 2) for each in (0, 1_000, 2_000, 3_000))])

    lately = heard.since(5_000)

    assert lately.records == 4
    assert lately.delivery() == {P50: 11, P99: 13}


def test_delivery_within_a_period_excludes_records_created_at_its_end() -> None:
    heard = Heard(4, [(1_000, 2_000), (2_000, 4_000), (3_000, 9_000)])

    then = heard.between(1_000, 3_000)

    assert then == Heard(3, [(1_000, 2_000), (2_000, 4_000)])
