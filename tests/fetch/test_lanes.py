"""On which lane a partition is asked for."""

from proxy.cluster.routing import Source
from proxy.cluster.topology import BrokerId
from proxy.fetch.lanes import Lanes
from proxy.wire.fetch import FetchPartition, PartitionKey

ASKS = {PartitionKey("orders", partition): FetchPartition(0, 1 << 20) for partition in range(2)}


def test_partition_that_the_client_fetch_has_an_error_of_is_on_no_lane_until_the_next_fetch() -> None:
    """Or its error is fetched again and again while other partitions are waited for."""
    source = Source(BrokerId(1))
    lanes = Lanes(source, 0.5, lambda _: "leader")

    def find_homes(*answered: PartitionKey) -> None:
        found = lanes.find_homes(ASKS, lambda _: source, 0.0, together=True, is_answered=answered.__contains__)
        assert list(found) == []

    failed, other = ASKS
    lanes.changed(ASKS)
    find_homes()
    lanes.failed(failed)

    find_homes(failed)
    assert set(lanes.home.patient.asks) == {other}

    find_homes()
    assert set(lanes.home.patient.asks) == {failed, other}
