"""The whole proxy over sockets, in front of an embedded cluster, for tests that need sockets."""

import io
import socket
import struct
from contextlib import AsyncExitStack
from typing import Any

import attrs
import pytest
import trio

from proxy.config import Address, Config, PortRange
from proxy.demo.client import KafkaConnection, connect
from proxy.demo.cluster import EmbeddedCluster, embedded_cluster
from proxy.demo.messages import encode_request
from proxy.errors import ConfigError, ErrorCode
from proxy.events import SessionRecord
from proxy.net.app import Proxy
from proxy.net.io.logs import Log
from proxy.net.io.sockets import FrameSocket
from proxy.wire.apis import ApiKey
from tests.conformance.raw import value_batch
from tests.net.proxied import Proxied, ask, configured, proxied, running

FETCH_VERSION = 11
LONG_NAME = "x" * 300


async def fetch(
    client: KafkaConnection, offsets: dict[int, int], version: int = FETCH_VERSION, **options: Any
) -> Any:
    return await client.call("fetch", version, ask(offsets, **options))


def errors_of(response: Any) -> list[int]:
    return [int(each.error_code) for topic in response.responses for each in topic.partitions]


async def closed(client: KafkaConnection) -> bool:
    """Whether the proxy hangs up, having said nothing."""
    return await client.receive_frame() is None


@pytest.mark.parametrize(
    ("api", "version", "body"),
    [
        ("metadata", 5, {"topics": [{"name": LONG_NAME}], "allow_auto_topic_creation": False}),
        (
            "list_offsets",
            4,
            {
                "replica_id": -1,
                "isolation_level": 0,
                "topics": [
                    {
                        "name": LONG_NAME,
                        "partitions": [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}],
                    }
                ],
            },
        ),
    ],
)
async def test_topic_name_over_249_bytes_gets_the_error_of_the_broker(
    api: str, version: int, body: dict[str, Any]
) -> None:
    async with proxied() as it, it.client(1) as client:
        (topic,) = (await client.call(api, version, body)).topics

    assert topic.name == LONG_NAME
    errors = [topic.error_code] if api == "metadata" else [each.error_code for each in topic.partitions]
    assert errors == [ErrorCode.unknown_topic_or_partition]


# ------------------------------------------------------------------------------------------------ sessions


async def test_an_idle_clients_full_fetches_reach_the_broker_as_empty_incremental_ones() -> None:
    async with proxied(upstream_max_wait_s=0) as it, it.client(1) as client:
        for _ in range(4):
            await fetch(client, {0: 0, 1: 0, 2: 0})

    kinds = [(each.kind, each.named, each.answered) for each in it.reads]
    assert kinds == [("sessionless", 3, 3), ("full", 3, 3), ("incremental", 0, 0), ("incremental", 0, 0)]


async def test_the_polls_of_an_idle_client_end_here() -> None:
    async with proxied(upstream_max_wait_s=60.0) as it, it.client(1) as client:
        for max_wait in (*[200] * 3, *[20] * 20):  # the first three wait until a long poll is in flight
            assert errors_of(await fetch(client, {0: 0, 1: 0, 2: 0}, max_wait=max_wait)) == [0, 0, 0]
        await client.send("fetch", FETCH_VERSION, ask({0: 0, 1: 0, 2: 0}, max_wait=10_000))
        await trio.sleep(0.05)
        it.cluster.append("t", 1, [b"news"])
        response = await client.receive()

    assert b"news" in response.responses[0].partitions[1].records
    assert it.proxy.counts["upstream_connections"] == 1, "neither another fetcher's nor the pass-through connection"
    kinds = [(each.kind, each.named, each.answered) for each in it.reads]
    assert kinds == [("sessionless", 3, 3), ("full", 3, 3), ("incremental", 0, 1)]


async def test_fetch_with_zero_max_wait_returns_records_just_written() -> None:
    async with proxied() as it, it.client(1) as client:
        for offset in range(20):
            it.cluster.append("t", 1, [b"news"])
            response = await fetch(client, {0: 0, 1: offset, 2: 0}, max_wait=0)
            written = response.responses[0].partitions[1]
            assert b"news" in written.records
            assert written.high_watermark == offset + 1
            assert errors_of(await fetch(client, {0: 0, 1: offset + 1, 2: 0}, max_wait=0)) == [0, 0, 0]


async def test_a_thousand_partitions_are_read_like_three() -> None:
    """Check requests, Metadata and responses that are larger than the buffer for small frames."""
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 1000, assignment=[[1]] * 1000)
        async with running(cluster, upstream_max_wait_s=0) as it, it.client(1) as client:
            for _ in range(3):
                response = await fetch(client, dict.fromkeys(range(1000), 0))
                assert errors_of(response) == [0] * 1000
            assert len((await client.call("metadata", 5, {"topics": None})).topics[0].partitions) == 1000
        assert [each.named for each in it.reads] == [1000, 1000, 0]


async def test_the_session_is_closed_at_the_broker_when_the_client_goes() -> None:
    async with proxied() as it:
        async with it.client(1) as client:
            for _ in range(2):
                await fetch(client, {0: 0})
            assert it.cluster.sessions == 1
        with trio.fail_after(3):
            while it.cluster.sessions:
                await trio.sleep(0.01)
    assert [each.event for each in it.records if isinstance(each, SessionRecord)] == ["created", "closed"]


async def test_the_session_is_closed_on_another_connection_if_its_own_waits() -> None:
    async with proxied() as it:
        async with it.client(1) as client:
            for _ in range(3):
                await fetch(client, {0: 0})
            await client.send("fetch", FETCH_VERSION, ask({0: 0}, max_wait=60_000))
            await trio.sleep(0.1)
        with trio.fail_after(3):
            while it.cluster.sessions:
                await trio.sleep(0.01)


async def test_records_of_recreated_topic_are_delivered() -> None:
    async with proxied() as it, it.client(1) as client:
        it.cluster.append("t", 0, [b"old"] * 5)
        for _ in range(3):
            await fetch(client, {0: 5})
        it.cluster.recreate_topic("t")
        it.cluster.append("t", 0, [b"new"])
        with trio.fail_after(5):
            while True:
                response = await fetch(client, {0: 0})
                if response.responses[0].partitions[0].records:
                    break
                assert set(errors_of(response)) <= {0, 3, 6}
    assert b"new" in response.responses[0].partitions[0].records


async def test_a_broker_killed_and_started_again_is_read_on() -> None:
    async with proxied() as it, it.client(1) as client:
        it.cluster.append("t", 0, [b"before"])
        for offset in (0, 1, 1):
            await fetch(client, {0: offset})
        it.cluster.stop(1)
        errors = errors_of(await fetch(client, {0: 1}))
        assert errors == [ErrorCode.not_leader_or_follower]
        await it.cluster.start(1)
        it.cluster.move_leader("t", 0, 1)
        it.cluster.append("t", 0, [b"after"])
        with trio.fail_after(10):
            while not (response := await fetch(client, {0: 1})).responses[0].partitions[0].records:
                assert set(errors_of(response)) <= {0, ErrorCode.not_leader_or_follower}
    assert b"after" in response.responses[0].partitions[0].records


async def test_frames_of_a_closed_fetch_connection_are_not_taken_for_the_next_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    receive, nonsense = FrameSocket.receive, [[memoryview(b"\xff\xff\xff\xff")] * 2]

    async def receive_nonsense_once(self: FrameSocket) -> list[memoryview]:
        frames = await receive(self)
        return nonsense.pop() if nonsense and self.peer in brokers else frames

    async with proxied(upstream_max_wait_s=0) as it, it.client(1) as client:
        await fetch(client, {0: 0})
        brokers = it.cluster.bootstrap.split(",")
        monkeypatch.setattr(FrameSocket, "receive", receive_nonsense_once)
        for _ in range(2):  # the fetcher waits already, and not for nonsense
            assert errors_of(await fetch(client, {0: 0})) == [0]
        assert len(it.logged("fetch-connection-closed")) == 1


async def test_each_broker_of_a_mixed_cluster_receives_fetches_in_its_own_version() -> None:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 3, assignment=[[1], [2], [3]])
        for node, newest in ((1, 17), (2, 12), (3, 6)):
            cluster.brokers[node].versions = {**cluster.brokers[node].versions, "fetch": (4, newest)}
        async with running(cluster) as it:
            for partition, node in enumerate((1, 2, 3)):
                await it.listening(node)
                cluster.append("t", partition, [b"from %d" % node])
                async with it.client(node) as client:
                    offered = (await client.call("api_versions", 0, {})).api_keys
                    assert {each.api_key: each.max_version for each in offered}[1] == (17, 12, 6)[partition]
                    for _ in range(3):
                        response = await fetch(client, {partition: 0}, version=4)
                        assert b"from %d" % node in response.responses[0].partitions[0].records
        kinds = {node: [each.kind for each in it.reads if each.node == node] for node in (1, 2, 3)}
    assert kinds[1] == kinds[2] == ["sessionless", "full", "incremental"]
    assert kinds[3] == ["sessionless"] * 3
    assert {each.version for each in it.reads} == {17, 12, 6}


# --------------------------------------------------------------------------------------------- connections


async def test_a_fetch_that_waits_stops_no_other_connection() -> None:
    async with proxied() as it, it.client(1) as waiting, it.client(1) as other:
        for _ in range(3):
            await fetch(waiting, {0: 0})
        await waiting.send("fetch", FETCH_VERSION, ask({0: 0}, max_wait=60_000))
        with trio.fail_after(2):
            assert errors_of(await fetch(other, {0: 0})) == [0]
            await other.call("metadata", 5, {})
        it.cluster.append("t", 0, [b"news"])
        assert b"news" in (await waiting.receive()).responses[0].partitions[0].records


async def test_responses_are_sent_in_request_order() -> None:
    async with proxied() as it, it.client(1) as client:
        for _ in range(2):
            await client.send("fetch", FETCH_VERSION, ask({0: 0}, max_wait=100))
            await client.send("metadata", 5, {})
            await client.send("list_offsets", 2, {"topics": [], "replica_id": -1})
        for _ in range(2):
            for _ in range(3):
                await client.receive()


async def test_produce_with_acks_0_gets_no_response_and_blocks_no_later_response() -> None:
    async with proxied() as it, it.client(1) as client:
        data = [{"name": "t", "partition_data": [{"index": 0, "records": value_batch(b"unanswered")}]}]
        request = {"acks": 0, "timeout": 1000, "topic_data": data}
        await client.send_frame(encode_request(ApiKey.PRODUCE, 9, 1, "unanswered", request))
        with trio.fail_after(5):
            await client.call("metadata", 5, {})
            while not (await fetch(client, {0: 0})).responses[0].partitions[0].records:
                pass


async def test_acks_0_and_away_loses_nothing() -> None:
    """Check that a request is sent if the socket accepted it, though no response is due."""
    requests, size = 2, 16_000_000
    async with proxied() as it:
        data = [{"name": "t", "partition_data": [{"index": 0, "records": value_batch(bytes(size))}]}]
        request = {"acks": 0, "timeout": 1000, "topic_data": data}
        async with it.client(1) as client:
            for _ in range(requests):
                await client.send_frame(encode_request(ApiKey.PRODUCE, 9, 1, "unanswered", request))
        async with it.client(1) as client:
            high_watermark = 0
            with trio.fail_after(5):
                while high_watermark < requests:
                    response = await fetch(client, {0: requests})
                    high_watermark = response.responses[0].partitions[0].high_watermark


async def test_a_bootstrap_connection_is_served_like_a_brokers() -> None:
    async with proxied() as it, it.client() as client:
        nodes = (await client.call("metadata", 5, {})).brokers
        assert {(each.host, each.port) for each in nodes} == {("127.0.0.1", it.port_of(n)) for n in (1, 2, 3)}
        assert set(errors_of(await fetch(client, {0: 0}))) <= {0, ErrorCode.not_leader_or_follower}


# ----------------------------------------------------------------------------------------------- bad input

BAD = {
    "a negative size": b"\xff\xff\xff\xff",
    "an unknown API": struct.pack(">ihhih", 10, 999, 0, 1, -1),
    "a header cut short": struct.pack(">ih", 2, 1),
    "a malformed fetch": struct.pack(">ihhih", 14, 1, 11, 1, -1) + b"\0\0\0\0",
    "a version of fetch that nobody knows": struct.pack(">ihhih", 10, 1, 99, 1, -1),
    "a follower's fetch": struct.pack(">ihhih", 10 + 17 + 4, 1, 4, 1, -1)
    + struct.pack(">iiiibi", 3, 0, 0, 0, 0, 0),
}


@pytest.mark.parametrize("name", BAD)
async def test_bad_input_closes_its_connection_with_one_line_and_no_other(name: str) -> None:
    async with proxied() as it, it.client(1) as good, it.client(1) as bad:
        await fetch(good, {0: 0})
        await bad.send_frame(BAD[name])
        assert await closed(bad)
        assert errors_of(await fetch(good, {0: 0})) == [0]
        assert len(it.logged("client-protocol-error")) == 1
        assert it.proxy.counts["client_protocol_errors"] == 1


async def test_lines_about_bad_input_are_limited_whatever_it_contains() -> None:
    async with proxied() as it:
        for api_key in range(900, 950):
            async with it.client(1) as client:
                await client.send_frame(struct.pack(">ihhih", 10, api_key, 0, 1, -1))
                assert await closed(client)
        assert it.proxy.counts["client_protocol_errors"] == 50
        assert len(it.logged("client-protocol-error")) <= 5


async def test_unreachable_brokers_at_startup_are_logged_once_and_retried() -> None:
    async with embedded_cluster(brokers=1) as cluster:
        cluster.create_topic("t", 1)
        cluster.stop(1)
        config = configured(cluster.bootstrap)
        async with trio.open_nursery() as nursery:
            it = await _start(nursery, cluster, config)
            with trio.fail_after(5):
                while not it.logged("no-broker-reachable"):
                    await trio.sleep(0.01)
            await cluster.start(1)
            async with connect(it.bootstrap) as client:
                assert len((await client.call("metadata", 5, {})).brokers) == 1
            nursery.cancel_scope.cancel()
    assert len(it.logged("no-broker-reachable")) == 1


async def test_no_client_is_kept_waiting_for_ever_for_a_first_broker() -> None:
    """Clients give up and come again: those who have gone must not be kept until there is none to spare."""
    async with embedded_cluster(brokers=1) as cluster:
        cluster.stop(1)
        plain = configured(cluster.bootstrap)
        config = attrs.evolve(plain, upstream=attrs.evolve(plain.upstream, connect_timeout_s=0.2))
        async with trio.open_nursery() as nursery:
            it = await _start(nursery, cluster, config)
            async with connect(it.bootstrap) as client:
                await client.send("metadata", 5, {})
                with trio.fail_after(3):
                    assert await closed(client)
            assert it.proxy.counts["brokers_unavailable"] == 1
            nursery.cancel_scope.cancel()


async def _start(nursery: trio.Nursery, cluster: EmbeddedCluster, config: Config) -> Proxied:
    stream = io.StringIO()
    proxy = Proxy(config, Log("text", "info", stream))
    await nursery.start(proxy.run)
    return Proxied(cluster, config, proxy, stream)


# --------------------------------------------------------------------------------------- ports and addresses


async def test_listen_address_in_use_is_reported_with_its_port() -> None:
    async with embedded_cluster(brokers=1) as cluster:
        config = configured(cluster.bootstrap)
        listen = config.downstream.listen[0]
        with socket.create_server((listen.host, listen.port)), pytest.raises(ExceptionGroup) as refused:
            async with running(cluster, config):
                pass
    assert refused.group_contains(ConfigError, match=str(config.downstream.listen[0]))


async def test_next_free_port_replaces_broker_port_in_use() -> None:
    async with embedded_cluster(brokers=2) as cluster:
        config = configured(cluster.bootstrap)
        first = config.downstream.broker_ports.first
        with socket.create_server(("127.0.0.1", first + 1)):
            async with running(cluster, config) as it, it.client() as client:
                nodes = (await client.call("metadata", 5, {})).brokers
    assert {each.node_id: each.port for each in nodes} == {1: first, 2: first + 2}
    (reported,) = it.logged("broker-port-taken")
    assert f"port={first + 1} " in reported


async def test_a_range_with_fewer_ports_than_brokers_is_refused() -> None:
    async with embedded_cluster(brokers=3) as cluster:
        plain = configured(cluster.bootstrap)
        first = plain.downstream.broker_ports.first
        config = configured(cluster.bootstrap, broker_ports=PortRange(first, first + 1))
        with pytest.raises(ExceptionGroup) as refused:
            async with running(cluster, config):
                await trio.sleep(10)
    assert refused.group_contains(ConfigError, match=f"broker-ports: broker 3 .*{first}-{first + 1}: all")


async def test_a_new_broker_gets_its_port_while_clients_are_served() -> None:
    async with embedded_cluster(brokers=3) as cluster:
        cluster.stop(3)
        async with running(cluster) as it, it.client(1) as client:
            assert len((await client.call("metadata", 5, {})).brokers) == 2
            await cluster.start(3)
            nodes = (await client.call("metadata", 5, {})).brokers
            assert {each.port for each in nodes} == {it.port_of(node) for node in (1, 2, 3)}
            async with it.client(3) as to_new:
                await to_new.call("metadata", 5, {})


async def test_a_dead_brokers_listener_stays() -> None:
    async with proxied() as it:
        await it.listening(3)
        it.cluster.stop(3)
        async with it.client(1) as client:
            assert len((await client.call("metadata", 5, {})).brokers) == 2
        async with it.client(3) as client:
            assert errors_of(await fetch(client, {0: 0})) == [ErrorCode.not_leader_or_follower]


async def test_ports_are_the_same_after_a_restart() -> None:
    async with embedded_cluster() as cluster:
        config = configured(cluster.bootstrap)
        ports = []
        for _ in range(2):
            async with running(cluster, config) as it, it.client() as client:
                nodes = (await client.call("metadata", 5, {})).brokers
                ports.append({each.node_id: each.port for each in nodes})
    assert ports[0] == ports[1]


async def test_metadata_advertises_the_host_that_the_client_connected_to() -> None:
    async with embedded_cluster() as cluster:
        config = configured(cluster.bootstrap)
        port = config.downstream.listen[0].port
        both = (Address("127.0.0.1", port), Address("::1", port))
        async with running(cluster, configured(cluster.bootstrap, listen=both)) as it:
            for address in both:
                async with connect(str(address)) as client:
                    nodes = (await client.call("metadata", 5, {})).brokers
                assert {each.host for each in nodes} == {address.host}
                async with connect(str(Address(address.host, nodes[0].port))) as client:
                    await client.call("metadata", 5, {})
            assert it.proxy.counts["connections"] == 4


async def test_metadata_advertises_the_configured_host() -> None:
    async with embedded_cluster() as cluster:
        config = configured(cluster.bootstrap, advertise="sidecar.example")
        async with running(cluster, config) as it, it.client() as client:
            nodes = (await client.call("metadata", 5, {})).brokers
    assert {each.host for each in nodes} == {"sidecar.example"}


# ------------------------------------------------------------------------------------------------ stopping


async def test_drain_completes_waiting_fetches_and_stops_after_last_client_disconnects() -> None:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 1, assignment=[[1]])
        async with trio.open_nursery() as nursery:
            it = await _start(nursery, cluster, configured(cluster.bootstrap))
            await it.listening(1)
            async with it.client(1) as client:
                for _ in range(3):
                    await fetch(client, {0: 0})
                await client.send("fetch", FETCH_VERSION, ask({0: 0}, max_wait=60_000))
                await trio.sleep(0.1)
                it.proxy.stop()
                with trio.fail_after(1):
                    assert errors_of(await client.receive()) == [0]
                await client.call("metadata", 5, {})
            with trio.fail_after(3):
                while not it.logged("stopped"):
                    await trio.sleep(0.01)
        assert "clients_left=0" in it.logged("stopped")[0]
        assert "client_sessions=0 client_session_partitions=0 client_session_evictions=0" in it.logged("stopped")[0]
        assert cluster.sessions == 0


async def test_drain_accepts_new_connections_of_clients_and_waits_for_them() -> None:
    async with embedded_cluster() as cluster:
        async with trio.open_nursery() as nursery:
            it = await _start(nursery, cluster, configured(cluster.bootstrap))
            await it.listening(2)
            async with AsyncExitStack() as later:
                async with it.client(1) as client:
                    await client.call("metadata", 5, {})
                    it.proxy.stop()
                    to_coordinator = await later.enter_async_context(it.client(2))
                    from_the_start = await later.enter_async_context(it.client())
                await to_coordinator.call("metadata", 5, {})
                await from_the_start.call("metadata", 5, {})
                assert not it.logged("stopped")
            with trio.fail_after(3):
                while not it.logged("stopped"):
                    await trio.sleep(0.01)
        with pytest.raises(ConnectionRefusedError):
            await connect(it.bootstrap, timeout_s=1).__aenter__()


async def test_a_broker_found_while_draining_is_reached_too() -> None:
    async with embedded_cluster(brokers=2) as cluster:
        cluster.stop(2)
        async with trio.open_nursery() as nursery:
            it = await _start(nursery, cluster, configured(cluster.bootstrap))
            await it.listening(1)
            async with it.client(1) as client:
                await client.call("metadata", 5, {})
                it.proxy.stop()
                await cluster.start(2)
                assert len((await client.call("metadata", 5, {})).brokers) == 2
                async with it.client(2) as to_new:
                    await to_new.call("metadata", 5, {})


async def test_drain_stops_at_end_of_grace_with_clients_connected() -> None:
    async with embedded_cluster() as cluster:
        config = configured(cluster.bootstrap)
        config = Config(config.upstream, config.downstream, grace_s=0.2)
        async with trio.open_nursery() as nursery:
            it = await _start(nursery, cluster, config)
            await it.listening(1)
            async with it.client(1) as client:
                await client.call("metadata", 5, {})
                it.proxy.stop()
                with trio.fail_after(3):
                    while not it.logged("stopped"):
                        await trio.sleep(0.01)
        assert "clients_left=1" in it.logged("stopped")[0]
