"""Time between fetches that bring a little, for those who want very many partitions."""

import pytest

from proxy.fetch.pace import Pace
from proxy.wire.fetch import FetchResponse, PartitionReply


def brought(size: int) -> FetchResponse:
    return FetchResponse(1, 0, 0, 0, (("t", (PartitionReply(0, 0, 1, records=bytes(size)),)),), ())


@pytest.mark.parametrize(("partitions", "pause_s"), [(1_000, 0.001), (5_000, 0.005), (10_000, 0.01)])
def test_the_pause_grows_with_what_a_fetch_costs_all_sides(partitions: int, pause_s: float) -> None:
    pace = Pace()

    pace.answered(brought(100), partitions, 50.0)

    assert pace.until_s == pytest.approx(50 + pause_s)


@pytest.mark.parametrize(("size", "partitions"), [(100, 900), (0, 5_000), (1 << 16, 5_000)])
def test_there_is_none_for_few_partitions_nor_after_nothing_nor_for_who_is_behind(
    size: int, partitions: int
) -> None:
    pace = Pace()

    pace.answered(brought(size), partitions, 50.0)

    assert pace.until_s < 50
