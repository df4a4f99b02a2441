"""The assignment of ports to brokers."""

import pytest

from proxy.cluster.topology import BrokerId
from proxy.config import PortRange
from proxy.relay.ports import NoPortLeft, PortAssignments


def book(first: int = 9093, last: int = 9095, *, is_shared: bool = False) -> PortAssignments:
    return PortAssignments(PortRange(first, last), is_shared)


def assigned(ports: PortAssignments, *nodes: int, unusable: tuple[int, ...] = ()) -> list[int]:
    return [ports.assign(BrokerId(node), unusable) for node in nodes]


def test_a_broker_has_the_first_port_plus_its_node_id() -> None:
    assert assigned(book(), 0, 1, 2) == [9093, 9094, 9095]
    assert assigned(book(), 2, 1, 0) == [9095, 9094, 9093]


def test_the_last_port_of_the_range_is_one_of_it() -> None:
    assert assigned(book(), 2) == [9095]


def test_a_broker_whose_id_does_not_fit_has_the_first_free_port() -> None:
    assert assigned(book(), 1, 1001, 3) == [9094, 9093, 9095]


def test_a_port_that_others_listen_on_is_left_out() -> None:
    assert assigned(book(), 0, 1, unusable=(9093,)) == [9094, 9095]


def test_a_broker_keeps_its_port_for_good() -> None:
    ports = book()
    first = assigned(ports, 1, 1001)

    assert assigned(ports, 1001, 1, unusable=(9093, 9094)) == first[::-1]


def test_no_two_brokers_share_a_port() -> None:
    ports = book(9093, 9192)
    nodes = [*range(50), *range(1000, 1050)]

    assert len(set(assigned(ports, *nodes))) == len(nodes)


def test_error_of_an_exhausted_port_range_names_the_broker() -> None:
    ports = book(9093, 9094)
    assigned(ports, 0, 1)

    with pytest.raises(NoPortLeft, match=r"broker 7 .*9093-9094"):
        ports.assign(BrokerId(7))
    with pytest.raises(NoPortLeft):
        ports.assign(BrokerId(-1))


def test_processes_that_share_ports_agree_on_them_whatever_each_has_seen() -> None:
    assert assigned(book(is_shared=True), 2, 0) == [9095, 9093]
    assert assigned(book(is_shared=True), 0, 1, 2) == [9093, 9094, 9095]


@pytest.mark.parametrize(("node", "unusable"), [(3, ()), (-1, ()), (1001, ()), (1, (9094,))])
def test_a_broker_has_no_other_port_than_that_of_its_id_where_ports_are_shared(
    node: int, unusable: tuple[int, ...]
) -> None:
    with pytest.raises(
        NoPortLeft, match=rf"broker {node} .*9093-9095: with share-ports it is {9093 + node} or none"
    ):
        book(is_shared=True).assign(BrokerId(node), unusable)
