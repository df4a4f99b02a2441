"""The records that get a row."""

import pytest

from proxy.telemetry.sampling import Sampler


def picked(sampler: Sampler, connections: int = 100, each: int = 200) -> int:
    return sum(sampler.picks(c, "exchange", n) for c in range(connections) for n in range(each))


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_as_many_are_picked_as_are_wanted(share: float) -> None:
    sampler = Sampler(share, "p")

    assert picked(sampler) * sampler.weight == pytest.approx(20_000, rel=0.2)


def test_all_or_none_are_all_or_none() -> None:
    assert (picked(Sampler(1.0, "p")), Sampler(1.0, "p").weight) == (20_000, 1.0)
    assert picked(Sampler(0.0, "p")) == 0


def test_the_same_are_picked_each_time() -> None:
    one, other = Sampler(0.3, "p"), Sampler(0.3, "p")

    assert all(one.picks(1, "fetch", n) == other.picks(1, "fetch", n) for n in range(200))


def test_the_first_of_short_connections_are_picked_as_often_as_others() -> None:
    sampler = Sampler(0.1, "p")

    assert sum(sampler.picks(c, "exchange", 1) for c in range(10_000)) == pytest.approx(1000, rel=0.15)


def test_other_processes_kinds_and_connections_have_others_picked() -> None:
    def those(sampler: Sampler, connection: int, kind: str) -> list[bool]:
        return [sampler.picks(connection, kind, n) for n in range(200)]

    picks = [
        those(Sampler(0.5, "p"), 1, "exchange"),
        those(Sampler(0.5, "q"), 1, "exchange"),
        those(Sampler(0.5, "p"), 2, "exchange"),
        those(Sampler(0.5, "p"), 1, "fetch"),
    ]

    assert len(set(map(tuple, picks))) == 4
