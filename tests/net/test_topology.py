"""The topology is refreshed when it must be, by one request at a time, and never as a storm."""

import io
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from proxy.cluster.topology import Topology
from proxy.config import Address, UpstreamConfig
from proxy.demo.cluster import EmbeddedCluster, embedded_cluster
from proxy.errors import BrokerUnavailable
from proxy.net.io.logs import Log
from proxy.net.upstream import brokers, topology
from proxy.net.upstream.brokers import BrokerConnection
from proxy.net.upstream.topology import TopologyCallback, TopologyService
from proxy.wire import messages
from proxy.wire.fetch import Topic, TopicId
from tests.net.proxied import Proxied, ask, proxied, running


def refreshes(it: Proxied) -> int:
    return len(it.logged("metadata-refreshed"))


async def test_many_clients_that_miss_a_topic_at_once_cost_a_request_or_two() -> None:
    async with proxied() as it:
        before = refreshes(it)

        async def read() -> None:
            async with it.client(1) as client:
                for _ in range(5):
                    await client.call("fetch", 11, ask({0: 0, 1: 0, 2: 0}))

        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(read)
        assert 1 <= refreshes(it) - before <= 3


async def test_a_topic_that_is_not_there_is_looked_up_twice_a_second_at_most() -> None:
    async with proxied() as it, it.client(1) as client:
        before, started_s = refreshes(it), trio.current_time()
        with trio.fail_after(30):
            while refreshes(it) < before + 4:
                response = await client.call("fetch", 11, ask({0: 0}, topic="nowhere"))
                assert [each.error_code for each in response.responses[0].partitions] == [3]
        assert trio.current_time() - started_s >= 1.4, "there is at least half a second between two refreshes"


async def test_fetch_from_new_leader_succeeds_and_old_leader_returns_not_leader() -> None:
    async with proxied() as it, it.client(1) as at_one, it.client(2) as at_two:
        it.cluster.append("t", 0, [b"record"])
        assert (await at_one.call("fetch", 11, ask({0: 0}))).responses[0].partitions[0].records
        it.cluster.move_leader("t", 0, 2)
        await trio.sleep(0.6)
        response = await at_two.call("fetch", 11, ask({0: 0}))
        assert response.responses[0].partitions[0].records
        response = await at_one.call("fetch", 11, ask({0: 0}))
        assert [each.error_code for each in response.responses[0].partitions] == [6]


async def test_metadata_refresh_survives_shutdown_of_the_broker_used_last() -> None:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 1, assignment=[[3]])
        async with running(cluster) as it:
            for node in (1, 2):
                cluster.stop(node)
                async with it.client(3) as client:
                    response = await client.call("fetch", 11, ask({0: 0}, topic=f"t{node}"))
                    assert [each.error_code for each in response.responses[0].partitions] == [3]


@asynccontextmanager
async def service(
    cluster: EmbeddedCluster,
    on_refreshed: TopologyCallback = lambda _: None,
    kind: type[TopologyService] = TopologyService,
) -> AsyncIterator[TopologyService]:
    """A service of its own, that has found the cluster."""
    servers = tuple(Address.parse(each) for each in cluster.bootstrap.split(","))
    it = kind(UpstreamConfig(servers), Log("text", "debug", io.StringIO()), on_refreshed)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(it.run)
        await it.known.wait()
        yield it
        nursery.cancel_scope.cancel()


async def test_topics_by_name_and_by_id_that_are_missed_at_once_are_both_found() -> None:
    """Brokers pass over the names in a request that has an id in it."""
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 1)
        cluster.create_topic("u", 1)
        topic_id = TopicId(cluster.state.topics["u"].id.bytes)
        reported: list[Topology] = []
        async with service(cluster) as it:
            it.request_refresh(frozenset({"t"}), reported.append)
            it.request_refresh(frozenset({topic_id}), reported.append)
            with trio.fail_after(3):
                while len(reported) < 2:
                    await trio.sleep(0.01)
            assert it.topology.topic("t") is not None
            assert it.topology.topic(topic_id) is not None


async def test_refresh_of_the_brokers_during_another_is_a_request_of_its_own() -> None:
    requested, may_go_on = trio.Event(), trio.Event()

    class Slow(TopologyService):
        """A service whose requests that name topics wait before they are sent."""

        async def _request_from(self, connection: BrokerConnection, topics: Sequence[Topic]) -> Any:
            if topics:
                requested.set()
                await may_go_on.wait()
            return await super()._request_from(connection, topics)

    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 1)
        refreshed: list[Topology] = []
        async with service(cluster, refreshed.append, kind=Slow) as it, trio.open_nursery() as nursery:
            refreshed.clear()
            it.request_refresh(frozenset({"t"}), lambda _: None)
            with trio.fail_after(20):
                await requested.wait()
                nursery.start_soon(it.refresh_brokers)
                await wait_all_tasks_blocked()
                may_go_on.set()
                while len(refreshed) < 2:
                    await trio.sleep(0.01)


async def test_metadata_response_without_brokers_is_ignored_and_retried() -> None:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 1)
        async with service(cluster) as it:
            alive = set(cluster.state.alive)
            cluster.state.alive.clear()
            reported: list[Topology] = []
            it.request_refresh(frozenset({"t"}), reported.append)
            await trio.sleep(0.3)
            assert (len(it.topology.brokers), reported) == (len(alive), [])
            cluster.state.alive.update(alive)
            with trio.fail_after(3):
                while not reported:
                    await trio.sleep(0.01)


async def test_null_topic_id_returns_unknown_topic_id_without_metadata_request() -> None:
    """A broker would fail the request, and with it all the topics that others wait for."""
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
    async with proxied() as it, it.client(1) as client:
        topics = {"topics": [{"topic_id": None, "partitions": [partition]}]}
        with trio.fail_after(3):
            response = await client.call("fetch", 13, {**ask({}), **topics})
        assert [each.error_code for each in response.responses[0].partitions] == [100]
        assert it.logged("metadata-refreshed")[-1].endswith("topics=0")


async def test_number_of_remembered_unknown_topics_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "_FAILED_TOPICS", 5)
    async with proxied() as it, it.client(1) as client:
        await client.call("fetch", 11, ask({0: 0}))
        for number in range(20):
            response = await client.call("fetch", 11, ask({0: 0}, topic=f"nowhere-{number}"))
            assert [each.error_code for each in response.responses[0].partitions] == [3]
        known = it.proxy.topology.topology.topics

    assert "t" in known
    assert sum(isinstance(each, str) for each in known) <= 1 + 5 + 1


class _Fussy(TopologyService):
    """A service whose brokers close the connection at each request with the topic ``poison``."""

    requests: ClassVar[list[int]] = []

    async def _request_from(self, connection: BrokerConnection, topics: Sequence[Topic]) -> Any:
        self.requests.append(len(topics))
        if "poison" in topics:
            raise BrokerUnavailable("closed")
        return await super()._request_from(connection, topics)


async def test_topic_at_which_brokers_close_the_connection_does_not_block_other_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topology, "_BATCH_TOPICS", 4)
    names = [f"t{number}" for number in range(9)]
    async with embedded_cluster() as cluster:
        for name in names:
            cluster.create_topic(name, 1)
        _Fussy.requests.clear()
        async with service(cluster, kind=_Fussy) as it:
            refreshed = trio.Event()
            it.request_refresh(frozenset({*names, "poison"}), lambda _: refreshed.set())
            with trio.fail_after(5):
                await refreshed.wait()

            assert [it.topology.topic(name) is not None for name in names] == [True] * 9
            assert it.topology.topic("poison") is None
            assert max(_Fussy.requests) == 4


async def test_topics_whose_metadata_exceeds_the_response_limit_are_requested_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(brokers, "_MAX_UNBUDGETED_BYTES", 800)
    names = [f"{number}".zfill(200) for number in range(8)]
    async with embedded_cluster() as cluster:
        for name in names:
            cluster.create_topic(name, 1)
        async with service(cluster) as it:
            refreshed = trio.Event()
            it.request_refresh(frozenset(names), lambda _: refreshed.set())
            with trio.fail_after(5):
                await refreshed.wait()

            assert [it.topology.topic(name) is not None for name in names] == [True] * 8


@pytest.mark.parametrize(("partitions", "is_large"), [(10, False), (2_000, True)])
async def test_metadata_of_many_partitions_is_read_in_threads(
    monkeypatch: pytest.MonkeyPatch, partitions: int, *, is_large: bool
) -> None:
    loop, others = threading.get_ident(), list[str]()
    decode, update = messages.read_response, Topology.with_metadata

    def note(what: str) -> None:
        if threading.get_ident() != loop:
            others.append(what)

    def noted_decode(*args: Any) -> Any:
        note("decode")
        return decode(*args)

    def noted_update(*args: Any) -> Topology:
        note("update")
        return update(*args)

    async with embedded_cluster() as cluster:
        cluster.create_topic("t", partitions)
        async with service(cluster) as it:
            monkeypatch.setattr(messages, "read_response", noted_decode)
            monkeypatch.setattr(Topology, "with_metadata", noted_update)
            refreshed = trio.Event()
            it.request_refresh(frozenset({"t"}), lambda _: refreshed.set())
            with trio.fail_after(5):
                await refreshed.wait()

            info = it.topology.topic("t")
            assert info is not None
            assert len(info.leaders) == partitions
    assert others == (["decode", "update"] if is_large else [])


async def test_unexpected_error_in_a_response_is_logged_and_the_request_repeated() -> None:
    class Broken(TopologyService):
        failures = 3

        async def _request_from(self, connection: BrokerConnection, topics: Sequence[Topic]) -> Any:
            self.failures -= 1
            if self.failures >= 0:
                raise KeyError("a bug")
            return await super()._request_from(connection, topics)

    async with embedded_cluster() as cluster:
        with trio.fail_after(5):
            async with service(cluster, kind=Broken) as it:
                assert it.is_reachable()


def test_topics_are_divided_by_number_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topology, "_BATCH_TOPICS", 3)
    monkeypatch.setattr(topology, "_BATCH_BYTES", 10)
    names = ["a", "b", "c", "d", "eeeeee", "ffff", "g", "h" * 20, "i"]

    batches = list(topology._batches(names))

    assert batches == [["a", "b", "c"], ["d", "eeeeee"], ["ffff", "g"], ["h" * 20], ["i"]]
    assert list(topology._batches([])) == []
