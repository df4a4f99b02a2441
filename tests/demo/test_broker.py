"""The embedded brokers as a client sees them: versions, addresses, leaders, faults."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from proxy.demo.batches import encode_batch
from proxy.demo.broker import API_VERSIONS, KEYS
from proxy.demo.client import KafkaConnection, connect
from proxy.demo.cluster import DemoRecord, EmbeddedCluster, embedded_cluster
from proxy.demo.messages import encode_request
from proxy.errors import ErrorCode
from proxy.wire.apis import ApiKey


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with embedded_cluster(seed=1) as cluster:
        yield cluster


def address(cluster: EmbeddedCluster, node: int) -> str:
    host, port = cluster.state.addresses[node]
    return f"{host}:{port}"


async def ask(cluster: EmbeddedCluster, node: int, api: str, version: int, said: dict[str, Any]) -> Any:
    async with connect(address(cluster, node)) as connection:
        return await connection.call(api, version, said)


def fetch_of(topic: dict[str, Any], *asks: dict[str, Any], **more: Any) -> dict[str, Any]:
    each = [{"fetch_offset": 0, "partition_max_bytes": 1 << 20, **ask} for ask in asks]
    return {"max_bytes": 1 << 20, "session_epoch": -1, "topics": [{**topic, "partitions": each}], **more}


async def fetched(cluster: EmbeddedCluster, node: int, version: int, said: dict[str, Any]) -> Any:
    """The answer about the one partition asked for."""
    response = await ask(cluster, node, "fetch", version, said)
    ((partition,),) = [topic.partitions for topic in response.responses]
    return partition


@pytest.mark.parametrize("version", range(API_VERSIONS["fetch"][0], API_VERSIONS["fetch"][1] + 1))
async def test_records_are_read_in_every_version(cluster: EmbeddedCluster, version: int) -> None:
    topic = cluster.create_topic("t", assignment=[[1]])
    cluster.append("t", 0, [b"a", b"b"])

    partition = await fetched(cluster, 1, version, fetch_of({"topic": "t", "topic_id": topic.id}, {"partition": 0}))

    assert (partition.error_code, partition.high_watermark) == (ErrorCode.none, 2)
    assert partition.records == cluster.partition("t", 0).log.read(0, 1000, at_least_one=True)


@pytest.mark.parametrize("version", range(API_VERSIONS["produce"][0], API_VERSIONS["produce"][1] + 1))
async def test_records_are_written_in_every_version(cluster: EmbeddedCluster, version: int) -> None:
    topic = cluster.create_topic("t", assignment=[[1]])
    data = {"partition_data": [{"index": 0, "records": encode_batch([DemoRecord(b"a")])}]}
    request = {"acks": -1, "topic_data": [{"name": "t", "topic_id": topic.id, **data}]}

    answers = [await ask(cluster, 1, "produce", version, request) for _ in range(2)]

    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers]
    assert offsets == [0, 1]
    assert cluster.partition("t", 0).log.end == 2


@pytest.mark.parametrize("version", range(API_VERSIONS["metadata"][0], API_VERSIONS["metadata"][1] + 1))
async def test_metadata_lists_brokers_and_leaders_in_every_version(cluster: EmbeddedCluster, version: int) -> None:
    cluster.create_topic("t", assignment=[[2, 3], [3, 1]])

    reported = await ask(cluster, 1, "metadata", version, {"topics": None if version else []})

    assert {broker.node_id: f"{broker.host}:{broker.port}" for broker in reported.brokers} == {
        node: address(cluster, node) for node in (1, 2, 3)
    }
    (topic,) = reported.topics
    assert [partition.leader_id for partition in topic.partitions] == [2, 3]
    assert [partition.replica_nodes for partition in topic.partitions] == [(2, 3), (3, 1)]
    if version >= 1:
        assert [broker.rack for broker in reported.brokers] == ["a", "b", "c"]


@pytest.mark.parametrize("version", range(API_VERSIONS["list_offsets"][0], API_VERSIONS["list_offsets"][1] + 1))
async def test_offsets_are_listed_in_every_version(cluster: EmbeddedCluster, version: int) -> None:
    cluster.create_topic("t", assignment=[[1]])
    cluster.append("t", 0, [DemoRecord(b"a", timestamp_ms=100), DemoRecord(b"b", timestamp_ms=200)])
    cluster.append("t", 0, [DemoRecord(b"c", timestamp_ms=150)])
    cluster.trim("t", 0, 1)

    offsets = []
    for timestamp in (-1, -2, -3, 150, 999):
        asked = [{"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}]
        request = {"topics": [{"name": "t", "partitions": asked}]}
        answer = await ask(cluster, 1, "list_offsets", version, request)
        offsets.append(answer.topics[0].partitions[0].offset)

    assert offsets == [3, 1, 1, 1, -1]


async def test_error_code_of_unknown_topic_depends_on_name_or_id(cluster: EmbeddedCluster) -> None:
    by_name, by_id = {"name": "nope"}, {"name": None, "topic_id": cluster.create_topic("gone").id}
    cluster.delete_topic("gone")

    asked = ([by_name], [by_id], [by_name, by_id])
    reported = [await ask(cluster, 1, "metadata", 12, {"topics": topics}) for topics in asked]

    assert [[int(topic.error_code) for topic in each.topics] for each in reported] == [[3], [100], [100]]


@pytest.mark.parametrize("version", [10, 12, 16])
async def test_non_leader_returns_error_to_old_clients_and_follower_serves_new_ones(
    cluster: EmbeddedCluster, version: int
) -> None:
    topic = cluster.create_topic("t", assignment=[[1, 2]])
    cluster.append("t", 0, [b"a"])
    request = fetch_of({"topic": "t", "topic_id": topic.id}, {"partition": 0})

    follower = await fetched(cluster, 2, version, request)
    stranger = await fetched(cluster, 3, version, request)

    assert follower.error_code == (ErrorCode.not_leader_or_follower if version < 11 else ErrorCode.none)
    assert stranger.error_code == ErrorCode.not_leader_or_follower
    if version >= 16:
        assert (stranger.current_leader.leader_id, stranger.current_leader.leader_epoch) == (1, 0)
        endpoints = (await ask(cluster, 3, "fetch", version, request)).node_endpoints
        assert [f"{each.host}:{each.port}" for each in endpoints] == [address(cluster, 1)]


async def test_leader_change_fences_old_epoch_and_ends_long_poll(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", assignment=[[1, 2]])
    request = fetch_of({"topic": "t"}, {"partition": 0, "current_leader_epoch": 0}, max_wait=20_000, min_bytes=1)
    async with connect(address(cluster, 1)) as connection:
        await connection.send("fetch", 12, request)
        await trio.sleep(0.05)

        cluster.move_leader("t", 0, 2)

        response = await connection.receive()
    assert response.responses[0].partitions[0].error_code == ErrorCode.fenced_leader_epoch
    known = fetch_of({"topic": "t"}, {"partition": 0, "current_leader_epoch": 1})
    assert (await fetched(cluster, 2, 12, known)).error_code == ErrorCode.none


async def test_a_leader_moves_only_to_a_replica_that_is_up(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", assignment=[[1, 2]])

    with pytest.raises(ValueError, match="no replica"):
        cluster.move_leader("t", 0, 3)


async def test_a_stopped_broker_breaks_connections_and_its_partitions_get_other_leaders(
    cluster: EmbeddedCluster,
) -> None:
    cluster.create_topic("t", assignment=[[1, 2], [1]])
    before = address(cluster, 1)
    async with connect(before) as connection:
        cluster.stop(1)
        assert await connection.receive_frame() is None
    with pytest.raises(OSError, match=r"refused|failed"):
        async with connect(before):
            pass
    reported = await ask(cluster, 2, "metadata", 12, {"topics": None})
    assert [broker.node_id for broker in reported.brokers] == [2, 3]
    assert [(p.leader_id, p.leader_epoch, p.error_code) for p in reported.topics[0].partitions] == [
        (2, 1, ErrorCode.none),
        (-1, 1, ErrorCode.leader_not_available),
    ]

    await cluster.start(1)

    assert address(cluster, 1) == before
    reported = await ask(cluster, 1, "metadata", 12, {"topics": None})
    assert [partition.leader_id for partition in reported.topics[0].partitions] == [2, 1]


async def test_sessions_do_not_outlive_their_broker(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", assignment=[[1]])
    created = await ask(cluster, 1, "fetch", 12, fetch_of({"topic": "t"}, {"partition": 0}) | {"session_epoch": 0})
    assert cluster.sessions == 1

    cluster.stop(1)
    await cluster.start(1)

    assert cluster.sessions == 0
    again = {"session_id": created.session_id, "session_epoch": 1}
    response = await ask(cluster, 1, "fetch", 12, again)
    assert response.error_code == ErrorCode.fetch_session_id_not_found


async def test_a_recreated_topic_is_103_within_a_session_and_100_outside(cluster: EmbeddedCluster) -> None:
    old = cluster.create_topic("t", assignment=[[1]])
    async with connect(address(cluster, 1)) as connection:
        full = fetch_of({"topic_id": old.id}, {"partition": 0})
        session = (await connection.call("fetch", 13, full | {"session_epoch": 0})).session_id

        new = cluster.recreate_topic("t")

        within = await connection.call("fetch", 13, {"session_id": session, "session_epoch": 1})
        outside = await connection.call("fetch", 13, full)
        renewed = await connection.call("fetch", 13, fetch_of({"topic_id": new.id}, {"partition": 0}))

    errors = [each.responses[0].partitions[0].error_code for each in (within, outside, renewed)]
    assert errors == [ErrorCode.inconsistent_topic_id, ErrorCode.unknown_topic_id, ErrorCode.none]


async def test_a_topic_unknown_at_first_is_found_later_by_the_same_session(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("known", assignment=[[1]])
    async with connect(address(cluster, 1)) as connection:
        full = fetch_of({"topic": "late"}, {"partition": 0}, session_epoch=0)
        first = await connection.call("fetch", 12, full)
        cluster.create_topic("late", assignment=[[1]])
        second = await connection.call("fetch", 12, {"session_id": first.session_id, "session_epoch": 1})

    errors = [each.responses[0].partitions[0].error_code for each in (first, second)]
    assert errors == [ErrorCode.unknown_topic_or_partition, ErrorCode.none]


async def test_diverging_epoch_is_returned(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", assignment=[[1, 2]])
    cluster.append("t", 0, [b"a"])
    cluster.move_leader("t", 0, 2)
    cluster.append("t", 0, [b"b"])

    asked = {"partition": 0, "fetch_offset": 2, "last_fetched_epoch": 0}
    partition = await fetched(cluster, 2, 12, fetch_of({"topic": "t"}, asked))

    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (0, 1)
    assert partition.records == b""


async def test_fetch_waits_for_min_bytes(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", assignment=[[1]])
    request = fetch_of({"topic": "t"}, {"partition": 0}, max_wait=20_000, min_bytes=1000)
    async with connect(address(cluster, 1)) as connection:
        await connection.send("fetch", 11, request)
        cluster.append("t", 0, [b"x" * 400])
        with trio.move_on_after(0.2) as early:
            await connection.receive_frame()
        cluster.append("t", 0, [b"x" * 700])

        response = await connection.receive()

    assert early.cancelled_caught
    assert len(response.responses[0].partitions[0].records) > 1000


async def test_older_broker_advertises_and_serves_only_its_versions(cluster: EmbeddedCluster) -> None:
    cluster.brokers[2].versions["fetch"] = (4, 6)

    reported = {node: await ask(cluster, node, "api_versions", 3, {"client_software_name": "x"}) for node in (1, 2)}
    newest = {
        node: next(each.max_version for each in answer.api_keys if each.api_key == KEYS["fetch"])
        for node, answer in reported.items()
    }
    assert newest == {1: API_VERSIONS["fetch"][1], 2: 6}
    async with connect(address(cluster, 2)) as connection:
        await connection.send("fetch", 7, {})
        assert await connection.receive_frame() is None


@pytest.mark.parametrize("version", range(API_VERSIONS["api_versions"][1] + 1))
async def test_produce_is_advertised_from_v0_but_v2_is_not_served(cluster: EmbeddedCluster, version: int) -> None:
    reported = await ask(cluster, 1, "api_versions", version, {})

    assert (0, 0, 13) in [(each.api_key, each.min_version, each.max_version) for each in reported.api_keys]
    async with connect(address(cluster, 1)) as connection:
        await connection.send_frame(bytes.fromhex("0000000a 0000 0002 00000001 ffff"))
        assert await connection.receive_frame() is None


@pytest.mark.parametrize(
    "frame",
    [
        "00000000",
        "00000003 000000",
        "ffffffff",
        "7fffffff",
        "0000000a 0001 000b 00000001 ffff",
        "0000000a 7fff 0000 00000001 ffff",
    ],
    ids=["empty", "too short", "negative size", "too large", "cut short", "unknown key"],
)
async def test_nonsense_closes_the_connection_and_no_other(cluster: EmbeddedCluster, frame: str) -> None:
    async with connect(address(cluster, 1)) as good, connect(address(cluster, 1)) as bad:
        await bad.send_frame(bytes.fromhex(frame))

        assert await bad.receive_frame() is None
        assert (await good.call("metadata", 12, {"topics": []})).cluster_id


async def test_produce_without_acks_has_no_response(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", assignment=[[1]])
    data = {"partition_data": [{"index": 0, "records": encode_batch([DemoRecord(b"a")])}]}
    async with connect(address(cluster, 1)) as connection:
        await _produce_blindly(connection, {"name": "t", **data})
        assert (await connection.call("metadata", 12, {"topics": []})).cluster_id
        assert cluster.partition("t", 0).log.end == 1

        await _produce_blindly(connection, {"name": "nope", **data})
        assert await connection.receive_frame() is None


async def _produce_blindly(connection: KafkaConnection, topic: dict[str, Any]) -> None:
    await connection.send_frame(encode_request(ApiKey.PRODUCE, 9, 99, "c", {"acks": 0, "topic_data": [topic]}))


@pytest.mark.parametrize(
    ("records", "acks", "error"),
    [
        (b"", -1, ErrorCode.invalid_record),
        (encode_batch([DemoRecord(b"a")]) * 2, -1, ErrorCode.invalid_record),
        (encode_batch([DemoRecord(b"a")])[:-1] + b"?", -1, ErrorCode.corrupt_message),
        (encode_batch([DemoRecord(b"a")]), 2, ErrorCode.invalid_required_acks),
    ],
    ids=["nothing", "two batches", "wrong checksum", "acks"],
)
async def test_invalid_produce_request_is_refused(
    cluster: EmbeddedCluster, records: bytes, acks: int, error: ErrorCode
) -> None:
    cluster.create_topic("t", assignment=[[1]])
    data = {"partition_data": [{"index": 0, "records": records}]}

    answer = await ask(cluster, 1, "produce", 9, {"acks": acks, "topic_data": [{"name": "t", **data}]})

    assert answer.responses[0].partition_responses[0].error_code == error
    assert cluster.partition("t", 0).log.end == 0


async def test_topics_are_created_and_deleted_by_request(cluster: EmbeddedCluster) -> None:
    wanted = {"num_partitions": 2, "replication_factor": 3, "assignments": [], "configs": []}
    topics = [{"name": name, **wanted} for name in ("t", "t", "")]

    created = await ask(cluster, 1, "create_topics", 7, {"topics": topics})
    deleted = await ask(cluster, 1, "delete_topics", 5, {"topic_names": ["t", "t"]})

    assert [topic.error_code for topic in created.topics] == [
        ErrorCode.none,
        ErrorCode.topic_already_exists,
        ErrorCode.invalid_topic_exception,
    ]
    assert (created.topics[0].num_partitions, created.topics[0].replication_factor) == (2, 3)
    assert [topic.error_code for topic in deleted.responses] == [
        ErrorCode.none,
        ErrorCode.unknown_topic_or_partition,
    ]


async def test_epoch_end_offsets_are_returned_by_leader_only(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", assignment=[[1, 2]])
    cluster.append("t", 0, [b"a"])
    cluster.move_leader("t", 0, 2)
    cluster.append("t", 0, [b"b"])
    asked = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch} for epoch in (0, 1)]
    request = {"topics": [{"topic": "t", "partitions": asked}]}

    leader = await ask(cluster, 2, "offset_for_leader_epoch", 4, request)
    follower = await ask(cluster, 1, "offset_for_leader_epoch", 4, request)

    assert [(p.leader_epoch, p.end_offset) for p in leader.topics[0].partitions] == [(0, 1), (1, 2)]
    assert {p.error_code for p in follower.topics[0].partitions} == {ErrorCode.not_leader_or_follower}


@pytest.fixture
async def racks() -> AsyncIterator[EmbeddedCluster]:
    """Rack-aware; 4 and 5 are in the racks of 1 and 2."""
    async with embedded_cluster(5, is_rack_aware=True) as cluster:
        yield cluster


async def preferred(cluster: EmbeddedCluster, node: int, rack: str, version: int = 12, **asked: int) -> int:
    """Return the replica that the broker names to a client in *rack*; -1 for itself."""
    request = fetch_of({"topic": "t"}, {"partition": 0, **asked}, rack_id=rack)
    partition = await fetched(cluster, node, version, request)
    assert partition.error_code == ErrorCode.none
    assert bool(partition.records) is (partition.preferred_read_replica == -1)
    return int(partition.preferred_read_replica)


async def test_the_leader_names_the_replica_in_the_clients_rack(racks: EmbeddedCluster) -> None:
    racks.create_topic("t", assignment=[[1, 2, 3]])
    racks.append("t", 0, [b"a"])

    assert [await preferred(racks, 1, rack) for rack in ("a", "b", "c", "d", "")] == [-1, 2, 3, -1, -1]


async def test_a_leader_in_the_rack_is_read_itself_and_else_the_highest_node_id_decides(
    racks: EmbeddedCluster,
) -> None:
    racks.create_topic("t", assignment=[[1, 4, 2, 5]])
    racks.append("t", 0, [b"a"])

    assert await preferred(racks, 1, "a") == -1
    assert await preferred(racks, 1, "b") == 5
    racks.stop(5)
    assert await preferred(racks, 1, "b") == 2
    racks.stop(2)
    assert await preferred(racks, 1, "b") == -1


async def test_followers_serve_records_and_return_no_preferred_read_replica(racks: EmbeddedCluster) -> None:
    racks.create_topic("t", assignment=[[1, 2, 3]])
    racks.append("t", 0, [b"a"])

    assert [await preferred(racks, 2, rack) for rack in ("a", "b", "c", "")] == [-1] * 4


@pytest.mark.parametrize(("version", "named"), [(10, -1), (11, 2), (12, 2)])
async def test_a_closest_replica_is_named_from_version_11_on(
    racks: EmbeddedCluster, version: int, named: int
) -> None:
    racks.create_topic("t", assignment=[[1, 2]])
    racks.append("t", 0, [b"a"])
    request = fetch_of({"topic": "t"}, {"partition": 0}, **({"rack_id": "b"} if version >= 11 else {}))

    partition = await fetched(racks, 1, version, request)

    assert getattr(partition, "preferred_read_replica", -1) == named


async def test_cluster_without_selector_returns_no_preferred_read_replica(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", assignment=[[1, 2, 3]])
    cluster.append("t", 0, [b"a"])

    assert await preferred(cluster, 1, "b") == -1


async def test_preferred_read_replica_is_returned_at_once_with_log_offsets(racks: EmbeddedCluster) -> None:
    racks.create_topic("t", assignment=[[1, 2]])
    racks.append("t", 0, [b"a", b"b"])
    request = fetch_of(
        {"topic": "t"}, {"partition": 0, "fetch_offset": 2}, rack_id="b", max_wait=60_000, min_bytes=1
    )

    with trio.fail_after(5):
        partition = await fetched(racks, 1, 12, request)

    assert (partition.preferred_read_replica, partition.records or b"") == (2, b"")
    assert (partition.high_watermark, partition.last_stable_offset, partition.log_start_offset) == (2, 2, 0)


async def test_an_offset_that_no_replica_has_is_the_leaders_to_refuse(racks: EmbeddedCluster) -> None:
    racks.create_topic("t", assignment=[[1, 2]])
    racks.append("t", 0, [b"a", b"b"])
    racks.trim("t", 0, 1)

    for offset in (0, 3):
        request = fetch_of({"topic": "t"}, {"partition": 0, "fetch_offset": offset}, rack_id="b")
        partition = await fetched(racks, 1, 12, request)
        assert (partition.error_code, partition.preferred_read_replica) == (ErrorCode.offset_out_of_range, -1)


async def test_leader_epoch_is_checked_before_preferred_read_replica(racks: EmbeddedCluster) -> None:
    racks.create_topic("t", assignment=[[1, 2]])
    racks.append("t", 0, [b"a"])
    request = fetch_of({"topic": "t"}, {"partition": 0, "current_leader_epoch": 5}, rack_id="b")

    assert (await fetched(racks, 1, 12, request)).error_code == ErrorCode.unknown_leader_epoch


async def test_session_repeats_preferred_read_replica_in_incremental_fetch(
    racks: EmbeddedCluster,
) -> None:
    racks.create_topic("t", assignment=[[1, 2]])
    async with connect(address(racks, 1)) as connection:
        request = fetch_of({"topic": "t"}, {"partition": 0}, rack_id="b", session_epoch=0)
        created = await connection.call("fetch", 12, request)
        again = await connection.call(
            "fetch", 12, {"session_id": created.session_id, "session_epoch": 1, "rack_id": "b"}
        )

    reported = [each.responses[0].partitions[0].preferred_read_replica for each in (created, again)]
    assert reported == [2, 2]


async def test_bytes_of_records_are_counted_by_rack(racks: EmbeddedCluster) -> None:
    racks.create_topic("t", assignment=[[1, 2]])
    racks.append("t", 0, [b"a"])
    size = racks.partition("t", 0).log.read(0, 1000, at_least_one=True)
    assert await preferred(racks, 1, "b") == 2
    assert racks.record_bytes == {"a": 0, "b": 0, "c": 0}
    for node, times in ((1, 1), (2, 3)):
        for _ in range(times):
            await preferred(racks, node, "")

    assert racks.record_bytes == {"a": len(size), "b": 3 * len(size), "c": 0}


async def test_brokers_count_fetch_costs(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", assignment=[[1], [1]])
    asks = [{"partition": 0}, {"partition": 1}]
    async with connect(address(cluster, 1)) as connection:
        created = await connection.call("fetch", 12, fetch_of({"topic": "t"}, *asks, session_epoch=0))
        await connection.call("fetch", 12, {"session_id": created.session_id, "session_epoch": 1})

    counted = cluster.brokers[1].counters
    assert (counted.fetches, counted.incremental_fetches) == (2, 1)
    assert (counted.partitions_named, counted.partitions_answered) == (2, 2)
    assert counted.requests[(KEYS["fetch"], 12)] == 2
    assert cluster.counters.fetch_request_bytes == counted.fetch_request_bytes > 0
    cluster.reset_counters()
    assert cluster.counters.fetches == 0


async def test_ten_thousand_idle_partitions_in_a_session_are_cheap(cluster: EmbeddedCluster) -> None:
    topic = cluster.create_topic("t", assignment=[[1]] * 10_000)
    asks = [{"partition": index} for index in range(10_000)]
    async with connect(address(cluster, 1)) as connection:
        full = fetch_of({"topic_id": topic.id}, *asks, session_epoch=0)
        session = (await connection.call("fetch", 13, full)).session_id
        cluster.reset_counters()
        for epoch in range(1, 11):
            response = await connection.call("fetch", 13, {"session_id": session, "session_epoch": epoch})
            assert response.responses == ()

    counted = cluster.counters
    assert counted.fetch_request_bytes + counted.fetch_response_bytes <= 10 * 100
