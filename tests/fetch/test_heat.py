"""Moving partitions, and whether it pays to read them separately."""

import pytest

from proxy.fetch.heat import Heat, Parks
from proxy.wire.fetch import PartitionKey

KEY = PartitionKey("t", 0)


def heat_after(*exchanges: int, now: int) -> Heat:
    """The partition brought records in these exchanges."""
    heat = Heat()
    for heat.now in exchanges:
        heat.brought(KEY)
    heat.now = now
    return heat


@pytest.mark.parametrize(
    ("exchanges", "now", "hot"),
    [
        ((), 1, False),
        ((1,), 1, False),
        ((1, 2), 2, False),
        ((1, 2, 3), 3, True),
        ((1, 2, 4), 4, False),
        ((1, 2, 3), 6, True),
        ((1, 2, 3), 7, False),
    ],
)
def test_hot_is_what_brought_records_three_times_running_and_not_long_ago(
    exchanges: tuple[int, ...], now: int, hot: bool
) -> None:
    heat = heat_after(*exchanges, now=now)
    assert heat.is_hot(KEY) is hot
    heat.prune()
    assert heat.is_hot(KEY) is hot


def test_two_answers_in_one_exchange_count_once() -> None:
    assert not heat_after(1, 1, 2, 2, now=2).is_hot(KEY)


def test_an_error_is_hot_at_once() -> None:
    heat = Heat()
    heat.now = 1
    heat.failed(KEY)
    assert heat.is_hot(KEY)


def parked(*waits_s: float) -> Parks:
    parks, now_s = Parks(), 100.0
    for wait_s in waits_s:
        parks.ended(now_s, now_s + wait_s, client_wait_s=0.5)
        now_s += wait_s
    return parks


def test_waits_shorter_than_the_clients_own_do_not_pay_for_a_minute() -> None:
    parks = parked(*[0.25] * 241)

    assert not parks.pay(161.0)
    assert parks.pay(221.0)


def test_longer_ones_pay() -> None:
    assert parked(*[1.0] * 61).pay(161.0)


def test_a_few_short_ones_are_no_reason() -> None:
    assert parked(*[0.25] * 100).pay(125.0)
