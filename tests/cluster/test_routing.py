"""The time at which partitions return to a follower that did not answer."""

from proxy.cluster.routing import Routes, Selector, Source
from proxy.cluster.topology import BrokerId
from proxy.wire.fetch import PartitionKey
from tests.relay.playbook import topology

FOLLOWER = BrokerId(2)


def test_all_partitions_return_to_a_follower_once_its_last_back_off_is_over() -> None:
    known = topology(3)
    lost, kept_away = PartitionKey("t", 0), PartitionKey("t", 1)
    routes = Routes(BrokerId(1), Selector.RACK_AWARE, 300)
    routes.exclude_follower(FOLLOWER, [lost], 0.0)
    assert routes.choose_source(kept_away, "b", known, 0.5) == routes.home
    routes.exclude_follower(FOLLOWER, [], 0.9)

    assert list(routes.take_expired(1.5)) == []
    assert set(routes.take_expired(3.0)) == {lost, kept_away}
    assert routes.choose_source(kept_away, "b", known, 3.0) == Source(FOLLOWER)
    assert list(routes.take_expired(9.0)) == []
