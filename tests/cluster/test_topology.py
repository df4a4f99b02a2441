"""One view of the cluster out of another and a Metadata answer, of any version."""

from typing import Any
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.static.primitive import i16

from proxy.cluster.topology import Broker, BrokerId, Leader, Replicas, TopicInfo, Topology
from proxy.wire.fetch import PartitionKey, Topic, TopicId
from tests.wire.entities import item_type, made

ONE, TWO = UUID(int=1), UUID(int=2)
ID_ONE, ID_TWO = TopicId(ONE.bytes), TopicId(TWO.bytes)


def metadata(
    *topics: tuple[str | None, UUID | None, dict[int, tuple[int, int]]],
    version: int = 12,
    error: ErrorCode = ErrorCode.none,
    brokers: tuple[int, ...] = (1,),
) -> Any:
    """Topics: name, id, and (leader, epoch) by partition."""
    kind: Any = load_response_schema(i16(3), i16(version))
    topic_kind, broker_kind = item_type(kind, "topics"), item_type(kind, "brokers")
    partition_kind = item_type(topic_kind, "partitions")

    def partition(index: int, leader: int, epoch: int) -> Any:
        epochs = {"leader_epoch": epoch} if version >= 7 else {}
        offline = {"offline_replicas": (3,)} if version >= 5 else {}
        replicas = {"replica_nodes": (1, 2, 3), "isr_nodes": (1, 3)}
        return made(partition_kind, partition_index=index, leader_id=leader, **replicas, **epochs, **offline)

    def topic(name: str | None, topic_id: UUID | None, leaders: dict[int, tuple[int, int]]) -> Any:
        ids = {"topic_id": topic_id} if version >= 10 else {}
        listed = tuple(partition(index, *leader) for index, leader in leaders.items())
        return made(topic_kind, name=name, partitions=listed, error_code=error, **ids)

    racks = {"rack": "a"} if version >= 1 else {}
    return made(
        kind,
        topics=tuple(topic(*each) for each in topics),
        brokers=tuple(made(broker_kind, node_id=each, host=f"b{each}", port=9092, **racks) for each in brokers),
        **({"cluster_id": "cluster"} if version >= 2 else {}),
    )


@pytest.mark.parametrize("version", range(14))
def test_metadata_response_of_every_version_updates_the_topology(version: int) -> None:
    view = Topology().with_metadata(
        metadata(("orders", ONE, {0: (1, 5), 1: (2, 6)}), version=version, brokers=(1, 2))
    )

    epochs = (5, 6) if version >= 7 else (-1, -1)
    leaders = {0: Leader(BrokerId(1), epochs[0]), 1: Leader(BrokerId(2), epochs[1])}
    gone = (3,) if version < 5 else ()
    replicas = Replicas(tuple(map(BrokerId, (1, 2, *gone))), tuple(map(BrokerId, (1, *gone))))
    info = TopicInfo("orders", ID_ONE if version >= 10 else None, 0, leaders, dict.fromkeys((0, 1), replicas))
    assert view.topic("orders") == info
    assert view.topic(ID_ONE) == (info if version >= 10 else None)
    rack = "a" if version >= 1 else None
    assert view.brokers == {BrokerId(n): Broker(BrokerId(n), f"b{n}", 9092, rack) for n in (1, 2)}
    assert view.cluster_id == ("cluster" if version >= 2 else None)


def test_unchanged_topic_keeps_its_object_by_name_and_by_id() -> None:
    before = Topology().with_metadata(metadata(("orders", ONE, {0: (1, 5)})))

    after = before.with_metadata(metadata(("orders", ONE, {0: (1, 5)})))

    assert after.topic("orders") is before.topic("orders")
    assert after.topic(ID_ONE) is before.topic(ID_ONE) is before.topic("orders")


@pytest.mark.parametrize("leader", [(2, 5), (1, 6), (-1, 5)])
def test_a_new_leader_or_epoch_makes_the_topic_another(leader: tuple[int, int]) -> None:
    before = Topology().with_metadata(metadata(("orders", ONE, {0: (1, 5)})))

    after = before.with_metadata(metadata(("orders", ONE, {0: leader})))

    info = after.topic("orders")
    assert info is not None
    assert info is not before.topic("orders")
    assert info.leaders == {0: Leader(BrokerId(leader[0]), leader[1])}
    assert after.topic(ID_ONE) is info


def test_brokers_are_replaced_and_topics_that_are_not_named_stay() -> None:
    before = Topology().with_metadata(metadata(("orders", ONE, {0: (1, 5)}), brokers=(1, 2)))

    after = before.with_metadata(metadata(("payments", TWO, {}), brokers=(2, 3)))

    assert set(after.brokers) == {2, 3}
    assert after.topic("orders") is before.topic("orders")
    assert after.topic("payments") is after.topic(ID_TWO) is not None
    assert before.topic("payments") is None


def test_a_topic_that_came_back_under_another_id_takes_the_place_of_the_old_one() -> None:
    before = Topology().with_metadata(metadata(("orders", ONE, {0: (1, 5)})))

    after = before.with_metadata(metadata(("orders", TWO, {0: (1, 0)})))

    assert after.topic("orders") is after.topic(ID_TWO)
    assert after.topic(ID_ONE) == TopicInfo("orders", ID_ONE, ErrorCode.unknown_topic_id)


def test_of_a_deleted_topic_the_id_is_unknown_too() -> None:
    before = Topology().with_metadata(metadata(("orders", ONE, {0: (1, 5)})))

    after = before.with_metadata(metadata(("orders", None, {}), error=ErrorCode.unknown_topic_or_partition))

    assert after.topic("orders") == TopicInfo("orders", None, ErrorCode.unknown_topic_or_partition)
    assert after.topic(ID_ONE) == TopicInfo("orders", ID_ONE, ErrorCode.unknown_topic_id)


def test_an_id_that_the_brokers_do_not_know_is_kept_with_its_error() -> None:
    view = Topology().with_metadata(metadata((None, ONE, {}), error=ErrorCode.unknown_topic_id))

    assert view.topic(ID_ONE) == TopicInfo(None, ID_ONE, ErrorCode.unknown_topic_id)


# ----------------------------------------------------------------------------------------- what is shared


@pytest.mark.parametrize(("by_id", "topic"), [(False, "orders"), (True, ID_ONE)])
def test_a_partition_has_one_key_for_all_which_stays_when_its_leader_changes(by_id: bool, topic: Topic) -> None:
    before = Topology().with_metadata(metadata(("orders", ONE, {0: (1, 5)})))
    after = before.with_metadata(metadata(("orders", ONE, {0: (2, 6)})))
    infos = [view.topics[topic] for view in (before, before, after)]

    keys = [info.key(0, by_id=by_id) for info in infos]

    assert infos[0] != infos[2]
    assert keys[0] == PartitionKey(topic, 0)
    assert all(key is keys[0] for key in keys)


def test_keys_of_partitions_that_there_are_not_are_not_kept() -> None:
    info = Topology().with_metadata(metadata(("orders", ONE, {0: (1, 5)}))).topics["orders"]

    assert info.key(7, by_id=True) == info.key(7, by_id=True) == PartitionKey(ID_ONE, 7)
    assert info.key(7, by_id=True) is not info.key(7, by_id=True)


def test_a_topic_without_an_id_has_no_keys_by_id() -> None:
    info = Topology().with_metadata(metadata(("orders", None, {0: (1, 5)}), version=9)).topics["orders"]

    assert info.key(0, by_id=True) is None


def test_partitions_with_the_same_replicas_share_them() -> None:
    info = Topology().with_metadata(metadata(("orders", ONE, {0: (1, 5), 1: (2, 5)}))).topics["orders"]

    assert info.replicas[0] is info.replicas[1]


def test_known_names_leave_out_ids_of_unknown_topics() -> None:
    view = Topology().with_metadata(metadata(("orders", ONE, {0: (1, 5)})))

    assert list(view.known_names(["payments", ID_ONE, ID_TWO])) == ["payments", "orders"]
