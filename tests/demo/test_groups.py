"""Consumer groups, message by message."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import attrs
import pytest
import trio

from proxy.demo.client import KafkaConnection, connect
from proxy.demo.cluster import EmbeddedCluster, embedded_cluster
from proxy.demo.groups import Groups, _Phase
from proxy.demo.requests import coordinator_of
from proxy.errors import ErrorCode

GROUP = "g"


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", partitions=2)
        yield cluster


@attrs.define
class Member:
    """One consumer, on a connection of its own."""

    connection: KafkaConnection
    version: int = 5
    id: str = ""
    generation: int = -1
    instance_id: str | None = None

    async def call(self, api: str, version: int, said: Mapping[str, Any]) -> Any:
        identity = {
            "group_id": GROUP,
            "member_id": self.id,
            "generation_id": self.generation,
            "group_instance_id": self.instance_id,
        }
        return await self.connection.call(api, version, {**identity, **said})

    async def join(self, *, session_ms: int = 10_000, rebalance_ms: int = 10_000) -> Any:
        said = {
            "session_timeout": session_ms,
            "rebalance_timeout": rebalance_ms,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"m"}],
        }
        response = await self.call("join_group", self.version, said)
        if response.error_code == ErrorCode.member_id_required:
            self.id = response.member_id
            response = await self.call("join_group", self.version, said)
        self.id, self.generation = response.member_id, response.generation_id
        return response

    async def sync(self, assignments: Mapping[str, bytes] | None = None) -> Any:
        each = [{"member_id": id_, "assignment": data} for id_, data in (assignments or {}).items()]
        return await self.call("sync_group", 3, {"assignments": each})

    async def heartbeat(self) -> ErrorCode:
        error: ErrorCode = (await self.call("heartbeat", 3, {})).error_code
        return error

    async def leave(self, version: int = 4) -> ErrorCode:
        members = [{"member_id": self.id, "group_instance_id": None}]
        response = await self.call("leave_group", version, {"members": members})
        error: ErrorCode = response.error_code if version < 3 else response.members[0].error_code
        return error

    async def commit(self, offset: int, version: int = 7) -> ErrorCode:
        partitions = [{"partition_index": 1, "committed_offset": offset, "committed_metadata": "note"}]
        topics = [{"name": "t", "partitions": partitions}]
        said = {"generation_id_or_member_epoch": self.generation, "topics": topics}
        error: ErrorCode = (await self.call("offset_commit", version, said)).topics[0].partitions[0].error_code
        return error


def coordinator(cluster: EmbeddedCluster) -> str:
    host, port = cluster.state.addresses[coordinator_of(cluster.state, GROUP)]
    return f"{host}:{port}"


@pytest.fixture
async def member(cluster: EmbeddedCluster) -> AsyncIterator[Member]:
    async with connect(coordinator(cluster)) as connection:
        yield Member(connection)


@pytest.fixture
async def second(cluster: EmbeddedCluster) -> AsyncIterator[Member]:
    async with connect(coordinator(cluster)) as connection:
        yield Member(connection)


@pytest.mark.parametrize("version", range(10))
async def test_single_member_joins_and_receives_its_assignment(member: Member, version: int) -> None:
    member.version = version

    joined = await member.join()
    synced = await member.sync({member.id: b"mine"})

    assert (joined.error_code, joined.generation_id, joined.leader) == (ErrorCode.none, 1, member.id)
    assert [each.metadata for each in joined.members] == [b"m"]
    assert (synced.error_code, synced.assignment) == (ErrorCode.none, b"mine")
    assert await member.heartbeat() == ErrorCode.none


async def test_second_member_triggers_rebalance(member: Member, second: Member) -> None:
    await member.join()
    await member.sync({member.id: b"all"})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.join)
        while await member.heartbeat() != ErrorCode.rebalance_in_progress:
            await trio.sleep(0.01)
        joined = await member.join()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(second.sync)
        await trio.sleep(0.02)
        synced = await member.sync({member.id: b"half", second.id: b"other half"})

    assert (member.generation, second.generation) == (2, 2)
    assert {each.member_id for each in joined.members} == {member.id, second.id}
    assert synced.assignment == b"half"
    assert (await second.sync()).assignment == b"other half"


async def test_leaving_member_is_removed_and_others_rebalance(member: Member, second: Member) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(member.join)
        nursery.start_soon(second.join)
    assert member.generation == second.generation == 1

    assert await second.leave() == ErrorCode.none

    assert await second.heartbeat() == ErrorCode.unknown_member_id
    assert await member.heartbeat() == ErrorCode.rebalance_in_progress
    joined = await member.join()
    assert [each.member_id for each in joined.members] == [member.id]


@pytest.mark.parametrize("version", range(6))
async def test_the_last_one_to_leave_leaves_an_empty_group(member: Member, version: int) -> None:
    await member.join()

    assert await member.leave(version) == ErrorCode.none
    assert await member.leave(version) == ErrorCode.unknown_member_id
    member.id, member.generation = "", -1
    assert await member.commit(5) == ErrorCode.none


async def test_member_without_heartbeat_is_removed_after_session_timeout(member: Member, second: Member) -> None:
    await member.join(session_ms=100)
    await member.sync({member.id: b"all"})

    await trio.sleep(0.4)

    assert await member.heartbeat() == ErrorCode.unknown_member_id
    joined = await second.join()
    assert [each.member_id for each in joined.members] == [second.id]


async def test_member_that_misses_rebalance_timeout_is_removed(member: Member, second: Member) -> None:
    await member.join(rebalance_ms=200)
    await member.sync({member.id: b"all"})

    joined = await second.join(rebalance_ms=200)

    assert [each.member_id for each in joined.members] == [second.id]
    assert await member.heartbeat() == ErrorCode.unknown_member_id


async def test_a_static_member_that_restarts_takes_its_own_place(member: Member, second: Member) -> None:
    member.instance_id = second.instance_id = "static"
    await member.join()
    former = member.id

    joined = await second.join()

    assert len(joined.members) == 1
    assert joined.leader == second.id != former


async def test_a_wrong_generation_is_refused(member: Member) -> None:
    await member.join()
    member.generation += 1

    assert await member.heartbeat() == ErrorCode.illegal_generation
    assert (await member.sync()).error_code == ErrorCode.illegal_generation
    assert await member.commit(5) == ErrorCode.illegal_generation


async def test_a_stranger_is_refused(member: Member, second: Member) -> None:
    await member.join()
    second.id = "stranger"

    assert await second.heartbeat() == ErrorCode.unknown_member_id
    assert (await second.join()).error_code == ErrorCode.unknown_member_id
    second.id, second.generation = "", -1
    assert await second.commit(5) == ErrorCode.unknown_member_id


async def test_other_brokers_return_not_coordinator(cluster: EmbeddedCluster) -> None:
    wrong = next(node for node in cluster.state.alive if node != coordinator_of(cluster.state, GROUP))
    host, port = cluster.state.addresses[wrong]
    async with connect(f"{host}:{port}") as connection:
        member = Member(connection)
        errors = [
            (await member.join()).error_code,
            (await member.sync()).error_code,
            await member.heartbeat(),
            (await member.call("leave_group", 4, {"members": []})).error_code,
            await member.commit(1),
            (await member.call("offset_fetch", 5, {"topics": None})).error_code,
        ]

    assert set(errors) == {ErrorCode.not_coordinator}


@pytest.mark.parametrize("version", range(7))
async def test_the_coordinator_is_found(cluster: EmbeddedCluster, version: int) -> None:
    async with connect(cluster.bootstrap) as connection:
        found = await connection.call("find_coordinator", version, {"key": GROUP, "coordinator_keys": [GROUP]})

    each = found if version < 4 else found.coordinators[0]
    assert f"{each.host}:{each.port}" == coordinator(cluster)


@pytest.mark.parametrize("version", range(2, 11))
async def test_commits_are_kept_in_every_version(cluster: EmbeddedCluster, member: Member, version: int) -> None:
    topic_id = cluster.state.topics["t"].id
    identity = {"name": "t", "topic_id": topic_id}
    partitions = [{"partition_index": 1, "committed_offset": 42, "committed_metadata": "note"}]
    said = {"generation_id_or_member_epoch": -1, "topics": [{**identity, "partitions": partitions}]}

    committed = await member.call("offset_commit", version, said)

    assert committed.topics[0].partitions[0].error_code == ErrorCode.none
    wanted = [{**identity, "partition_indexes": [0, 1]}]
    groups = [{"group_id": GROUP, "topics": wanted}]
    reported = await member.call("offset_fetch", version, {"topics": wanted, "groups": groups})
    ((topic),) = reported.topics if version < 8 else reported.groups[0].topics
    assert [(each.committed_offset, each.metadata) for each in topic.partitions] == [(-1, ""), (42, "note")]


async def test_all_committed_offsets_are_returned_if_no_topic_is_named(member: Member) -> None:
    await member.commit(7)

    reported = await member.call("offset_fetch", 9, {"groups": [{"group_id": GROUP, "topics": None}]})

    assert [(topic.name, topic.partitions[0].committed_offset) for topic in reported.groups[0].topics] == [("t", 7)]


async def test_a_commit_for_an_unknown_topic_is_refused(member: Member) -> None:
    partitions = [{"partition_index": 0, "committed_offset": 1}]
    topics = [
        {"name": "nope", "partitions": partitions},
        {"name": "t", "partitions": [{**partitions[0], "partition_index": 9}]},
    ]

    reported = await member.call("offset_commit", 7, {"generation_id_or_member_epoch": -1, "topics": topics})

    errors = {topic.partitions[0].error_code for topic in reported.topics}
    assert errors == {ErrorCode.unknown_topic_or_partition}


async def test_timeouts_are_enforced_while_requests_create_groups(cluster: EmbeddedCluster) -> None:
    groups = Groups(cluster.state)
    first = groups.group("first")
    first.phase = _Phase.COMPLETING
    async with trio.open_nursery() as nursery:
        async with first.changed:
            nursery.start_soon(groups.run)
            await trio.sleep(0.1)
            groups.group("second")
        await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
