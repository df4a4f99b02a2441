"""Offsets of groups, over sockets, from clients that know no coordinator: whoever they ask, it answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from zlib import crc32

import attrs
import pytest

from proxy.cluster.topology import BrokerId
from proxy.demo import groups as groups_module
from proxy.demo.client import KafkaConnection, connect
from proxy.demo.messages import encode_request, read_response
from proxy.demo.requests import coordinator_of
from proxy.net.upstream import coordinator
from proxy.net.upstream.coordinator import CoordinatorClient
from proxy.wire.frames import with_size
from proxy.wire.headers import RequestHeader, write_request_header
from tests.convert.versions.old import commit, encoded
from tests.net.proxied import Proxied, proxied

NODES = (1, 2, 3)
OFFSET_COMMIT, OFFSET_FETCH = 8, 9
UNKNOWN = -1


@attrs.define
class OldClient:
    """Speaks OffsetCommit and OffsetFetch v0 on one connection."""

    connection: KafkaConnection
    correlation_id: int = 0

    async def commit(self, group: str, at: int) -> int:
        """The error."""
        body = encoded(commit.OffsetCommitRequest_v0, group, [("t", [(0, at, "m")])])
        answer = commit.OffsetCommitResponse_v0.decode(await self.ask(OFFSET_COMMIT, body))
        return int(answer.topics[0][1][0][1])

    async def committed(self, group: str) -> tuple[int, int]:
        """Offset and error."""
        body = encoded(commit.OffsetFetchRequest_v0, group, [("t", [0])])
        answer = commit.OffsetFetchResponse_v0.decode(await self.ask(OFFSET_FETCH, body))
        _, reported, _, error = answer.topics[0][1][0]
        return reported, error

    async def ask(self, key: int, body: bytes) -> bytes:
        await self.connection.send_frame(self.framed(key, body))
        answer = await self.connection.receive_frame()
        assert answer is not None
        assert int.from_bytes(answer[:4]) == self.correlation_id
        return answer[4:]

    def framed(self, key: int, body: bytes) -> bytes:
        self.correlation_id += 1
        header = write_request_header(RequestHeader(key, 0, self.correlation_id, "old"), flexible=False)
        return with_size(header + body)


@asynccontextmanager
async def old_client(it: Proxied, node: int) -> AsyncIterator[OldClient]:
    await it.listening(node)
    async with it.client(node) as connection:
        yield OldClient(connection)


def group_at(it: Proxied, node: int, number: int = 0) -> str:
    """A group that *node* coordinates."""
    names = (f"group-{n}" for n in range(1000))
    return [name for name in names if coordinator_of(it.cluster.state, name) == node][number]


@pytest.mark.parametrize("asked", NODES)
async def test_offsets_are_committed_and_fetched_by_way_of_any_broker(asked: int) -> None:
    async with proxied() as it, old_client(it, asked) as client:
        for node in NODES:
            group = group_at(it, node)
            assert await client.committed(group) == (-1, 3)
            assert await client.commit(group, 10 + node) == 0
            assert await client.committed(group) == (10 + node, 0)


async def test_a_clients_own_broker_needs_no_errand() -> None:
    async with proxied() as it, old_client(it, 1) as client:
        before = it.cluster.counters.connections
        assert await client.commit(group_at(it, 1), 5) == 0
        assert it.cluster.counters.connections == before + 1, "that for all but fetches"


async def test_one_connection_is_kept_for_coordinator_requests_of_a_client() -> None:
    async with proxied() as it, old_client(it, 1) as client:
        group, other = group_at(it, 2), group_at(it, 2, 1)
        await client.commit(group, 0)
        before = it.cluster.counters.connections
        for at in range(5):
            assert await client.commit(group, at) == 0
            assert await client.commit(other, at) == 0
        assert it.cluster.counters.connections == before


async def test_commit_on_an_errand_does_not_overwrite_a_later_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's broker becomes the coordinator between two commits that the client pipelines."""
    at_commits = iter([2])
    monkeypatch.setattr(groups_module, "coordinator_of", lambda *_: next(at_commits, 1))
    async with proxied() as it, old_client(it, 1) as client:
        group = group_at(it, 1)
        bodies = [encoded(commit.OffsetCommitRequest_v0, group, [("t", [(0, at, "m")])]) for at in (10, 20)]
        await client.connection.send_frame(b"".join(client.framed(OFFSET_COMMIT, body) for body in bodies))
        for _ in bodies:
            assert await client.connection.receive_frame() is not None

        assert await client.committed(group) == (20, 0)
        assert next(at_commits, None) is None


async def test_coordinator_is_looked_up_again_after_its_broker_stops() -> None:
    async with proxied() as it, old_client(it, 1) as client:
        group = group_at(it, 2)
        assert await client.commit(group, 5) == 0
        it.cluster.stop(2)
        assert await client.commit(group, 6) == 0
        assert await client.committed(group) == (6, 0)


async def test_a_group_that_has_moved_is_followed() -> None:
    """While the connection to its former coordinator is well."""
    async with proxied(brokers=4) as it, old_client(it, 1) as client:
        before, after = [1, 2, 3, 4], [1, 2, 3]
        names = (f"group-{n}" for n in range(1000))
        group = next(name for name in names if (_at(name, before), _at(name, after)) == (2, 3))
        assert await client.commit(group, 5) == 0
        it.cluster.stop(4)
        assert coordinator_of(it.cluster.state, group) == 3
        assert await client.commit(group, 6) == 0
        assert await client.committed(group) == (6, 0)


def _at(group: str, nodes: list[int]) -> int:
    """The embedded cluster's choice of a coordinator among those that are up."""
    return nodes[crc32(group.encode()) % len(nodes)]


async def test_failed_coordinator_lookup_returns_unknown_server_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "_FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(coordinator, "_LONGEST_WAIT_S", 0.01)
    async with proxied() as it, old_client(it, 1) as client:
        group = group_at(it, 2)
        for broker in it.cluster.brokers.values():
            broker.versions["find_coordinator"] = (90, 99)
        assert await client.commit(group, 5) == UNKNOWN
        assert await client.committed(group) == (-1, UNKNOWN)
        assert it.logged("coordinator-not-found")


async def test_client_that_names_many_groups_does_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator, "_FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(coordinator, "_LONGEST_WAIT_S", 0.01)
    async with proxied() as it, old_client(it, 1) as client:
        for broker in it.cluster.brokers.values():
            broker.versions["find_coordinator"] = (90, 99)
        for number in range(5):
            assert await client.committed(group_at(it, 2, number)) == (-1, UNKNOWN)
        assert len(it.logged("coordinator-not-found")) == 1


async def test_the_connection_is_closed_with_the_clients() -> None:
    async with proxied() as it:
        group = group_at(it, 2)
        address_of = it.proxy.topology.address_of
        coordinator = CoordinatorClient(BrokerId(1), address_of, 2, it.proxy.log)
        frame = encode_request(OFFSET_FETCH, 1, 1, "old", {"group_id": group, "topics": []})
        assert await coordinator.send_request(group, [frame], is_retry=False) is not None
        assert coordinator._connection is not None
        frames = coordinator._connection.frames
        coordinator.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            await frames.receive()


async def test_coordinator_response_is_returned_unchanged() -> None:
    async with proxied() as it:
        group = group_at(it, 3)
        coordinator = CoordinatorClient(BrokerId(1), it.proxy.topology.address_of, 2, it.proxy.log)
        topics = [{"name": "t", "partition_indexes": [0]}]
        frame = encode_request(OFFSET_FETCH, 1, 7, "old", {"group_id": group, "topics": topics})
        direct, through = [], await coordinator.send_request(group, [frame], is_retry=False)
        host, port = it.cluster.state.addresses[3]
        async with connect(f"{host}:{port}") as connection:
            await connection.send_frame(frame)
            direct.append(await connection.receive_frame())
        coordinator.close()
        assert through is not None
        assert [bytes(through)] == direct
        assert read_response(OFFSET_FETCH, 1, bytes(through))[0] == 7
