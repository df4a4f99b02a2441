"""Fetch sessions of brokers (KIP-227): the embedded cluster and real brokers pass the same tests.

Each test has a topic of its own, with all partitions led by one broker, and sends to that broker. ``by name`` is
Fetch v12, ``by id`` Fetch v17.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any
from uuid import UUID, uuid4

import attrs
import pytest
import trio

from proxy.demo.cluster import embedded_cluster
from proxy.errors import ErrorCode
from tests.conformance.raw import Raw, batches_in, dial, value_batch

Named = tuple[int, int]
"""Partition and offset."""

NONE = ErrorCode.none


@attrs.define
class Topic:
    """One topic, a connection to its leader, and how to speak of it."""

    raw: Raw
    address: str
    name: str
    id: UUID
    version: int
    leader_epoch: int = -1

    async def fetch(
        self,
        session: tuple[int, int],
        named: Sequence[Named] = (),
        *,
        forget: Iterable[int] = (),
        max_wait: int = 0,
        max_bytes: int = 1 << 20,
        version: int | None = None,
        raw: Raw | None = None,
    ) -> Any:
        raw = raw or self.raw
        await self.send_fetch(
            session, named, forget=forget, max_wait=max_wait, max_bytes=max_bytes, version=version, raw=raw
        )
        return await raw.receive()

    async def send_fetch(
        self,
        session: tuple[int, int],
        named: Sequence[Named] = (),
        *,
        forget: Iterable[int] = (),
        max_wait: int = 0,
        max_bytes: int = 1 << 20,
        version: int | None = None,
        raw: Raw | None = None,
    ) -> None:
        forget = list(forget)
        identity = {"topic": self.name, "topic_id": self.id}
        asks = [
            {
                "partition": partition,
                "fetch_offset": offset,
                "partition_max_bytes": max_bytes,
                "current_leader_epoch": self.leader_epoch,
            }
            for partition, offset in named
        ]
        request = {
            "max_wait": max_wait,
            "min_bytes": 1,
            "max_bytes": max_bytes,
            "session_id": session[0],
            "session_epoch": session[1],
            "topics": [{**identity, "partitions": asks}] if asks else [],
            "forgotten_topics_data": [{**identity, "partitions": forget}] if forget else [],
        }
        await (raw or self.raw).send("fetch", version or self.version, request)

    async def produce(self, partition: int, *values: bytes) -> int:
        data = {"partition_data": [{"index": partition, "records": value_batch(*values)}]}
        request = {"acks": -1, "timeout": 5000, "topic_data": [{"name": self.name, **data}]}
        async with dial(self.address) as raw:
            response = await raw.call("produce", 9, request)
        (answer,) = response.responses[0].partition_responses
        assert answer.error_code == NONE
        offset: int = answer.base_offset
        return offset

    async def session(self, *named: Named) -> int:
        response = await self.fetch((0, 0), named)
        assert response.error_code == NONE
        assert response.session_id > 0
        session_id: int = response.session_id
        return session_id


def partitions_of(response: Any) -> dict[int, Any]:
    return {data.partition_index: data for topic in response.responses for data in topic.partitions}


def partitions_in(response: Any) -> list[int]:
    return list(partitions_of(response))


REAL = [pytest.param(name, marks=pytest.mark.kafka) for name in ("kafka4", "kafka39")]


@pytest.fixture(params=["embedded", *REAL])
def real(request: pytest.FixtureRequest) -> str | None:
    """Bootstrap address of real brokers; None for the embedded ones."""
    if request.param == "embedded":
        return None
    bootstrap: str = request.getfixturevalue(request.param).bootstrap
    return bootstrap


@pytest.fixture
async def bootstrap(real: str | None) -> AsyncIterator[str]:
    if real is not None:
        yield real
        return
    async with embedded_cluster() as cluster:
        yield cluster.bootstrap


@pytest.fixture(params=[12, 17], ids=["by name", "by id"])
async def topic(bootstrap: str, request: pytest.FixtureRequest) -> AsyncIterator[Topic]:
    name = f"conformance-{uuid4()}"
    async with dial(bootstrap) as raw:
        nodes = {broker.node_id: broker for broker in (await raw.call("metadata", 12, {})).brokers}
        leader = nodes[min(nodes)]
        assignments = [{"partition_index": index, "broker_ids": [leader.node_id]} for index in range(3)]
        wanted = {
            "name": name,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": assignments,
            "configs": [],
        }
        created = await raw.call("create_topics", 7, {"topics": [wanted], "timeout": 10_000})
        assert created.topics[0].error_code == NONE, created.topics[0].error_message
    address = f"{leader.host}:{leader.port}"
    async with dial(address) as raw:
        topic = Topic(raw, address, name, created.topics[0].topic_id, request.param)
        await _until_led(topic)
        yield topic
        await raw.call("delete_topics", 5, {"topic_names": [name], "timeout": 10_000})


async def _until_led(topic: Topic) -> None:
    with trio.fail_after(20):
        while True:
            response = await topic.fetch((0, -1), [(0, 0), (1, 0), (2, 0)])
            if all(data.error_code == NONE for data in partitions_of(response).values()) and response.responses:
                return
            await trio.sleep(0.05)


async def test_full_fetch_without_session_gets_full_response_with_session_id_0(topic: Topic) -> None:
    response = await topic.fetch((0, -1), [(2, 0), (0, 0)])

    assert (response.error_code, response.session_id, partitions_in(response)) == (NONE, 0, [2, 0])


async def test_session_creation_returns_full_response_with_session_id(topic: Topic) -> None:
    response = await topic.fetch((0, 0), [(0, 0), (1, 0)])

    assert response.error_code == NONE
    assert response.session_id > 0
    assert partitions_in(response) == [0, 1]
    assert [data.high_watermark for data in partitions_of(response).values()] == [0, 0]


async def test_idle_session_returns_no_partitions(topic: Topic) -> None:
    session_id = await topic.session((0, 0), (1, 0))

    for epoch in (1, 2, 3):
        response = await topic.fetch((session_id, epoch))
        assert (response.error_code, response.session_id, partitions_in(response)) == (NONE, session_id, [])


async def test_session_returns_only_partitions_with_records(topic: Topic) -> None:
    session_id = await topic.session((0, 0), (1, 0), (2, 0))
    await topic.produce(1, b"x", b"y")

    response = await topic.fetch((session_id, 1))

    assert partitions_in(response) == [1]
    data = partitions_of(response)[1]
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (NONE, 2, 2)
    assert [batch.last_offset for batch in batches_in(data.records)] == [1]


async def test_unread_records_are_returned_again_until_offset_changes(topic: Topic) -> None:
    session_id = await topic.session((0, 0), (1, 0))
    await topic.produce(0, b"x")

    assert partitions_in(await topic.fetch((session_id, 1))) == [0]
    assert partitions_in(await topic.fetch((session_id, 2))) == [0]
    assert partitions_in(await topic.fetch((session_id, 3), [(0, 1)])) == []
    assert partitions_in(await topic.fetch((session_id, 4))) == []


async def test_added_partition_is_returned_once(topic: Topic) -> None:
    session_id = await topic.session((0, 0))

    assert partitions_in(await topic.fetch((session_id, 1), [(2, 0)])) == [2]
    assert partitions_in(await topic.fetch((session_id, 2))) == []


async def test_a_forgotten_partition_is_not_read(topic: Topic) -> None:
    session_id = await topic.session((0, 0), (1, 0))
    await topic.produce(0, b"x")
    await topic.produce(1, b"x")

    assert partitions_in(await topic.fetch((session_id, 1), forget=[0])) == [1]


async def test_forgetting_everything_ends_the_session(topic: Topic) -> None:
    session_id = await topic.session((0, 0), (1, 0))

    response = await topic.fetch((session_id, 1), forget=[0, 1])

    assert (response.error_code, response.session_id, partitions_in(response)) == (NONE, 0, [])
    gone = await topic.fetch((session_id, 2))
    assert gone.error_code == ErrorCode.fetch_session_id_not_found


async def test_unknown_id_is_70(topic: Topic) -> None:
    response = await topic.fetch((123_456_789, 1))

    assert (response.error_code, response.session_id) == (ErrorCode.fetch_session_id_not_found, 0)
    assert partitions_in(response) == []


async def test_wrong_session_epoch_returns_error_71_and_keeps_session(topic: Topic) -> None:
    session_id = await topic.session((0, 0))

    response = await topic.fetch((session_id, 2))

    assert (response.error_code, response.session_id) == (ErrorCode.invalid_fetch_session_epoch, 0)
    assert (await topic.fetch((session_id, 1))).error_code == NONE


async def test_the_epoch_before_is_71_as_well(topic: Topic) -> None:
    session_id = await topic.session((0, 0))
    await topic.fetch((session_id, 1))

    assert (await topic.fetch((session_id, 1))).error_code == ErrorCode.invalid_fetch_session_epoch


async def test_switch_between_topic_ids_and_names_returns_error_106_and_keeps_session(topic: Topic) -> None:
    session_id = await topic.session((0, 0))
    other = 17 if topic.version == 12 else 12

    response = await topic.fetch((session_id, 1), version=other)

    assert (response.error_code, response.session_id) == (ErrorCode.fetch_session_topic_id_error, 0)
    assert (await topic.fetch((session_id, 1))).error_code == NONE


async def test_close_and_new_gives_another_session(topic: Topic) -> None:
    session_id = await topic.session((0, 0), (1, 0))

    response = await topic.fetch((session_id, 0), [(2, 0)])

    assert response.session_id not in (0, session_id)
    assert partitions_in(response) == [2]
    assert (await topic.fetch((session_id, 1))).error_code == ErrorCode.fetch_session_id_not_found
    assert (await topic.fetch((response.session_id, 1))).error_code == NONE


async def test_close_ends_the_session(topic: Topic) -> None:
    session_id = await topic.session((0, 0))

    response = await topic.fetch((session_id, -1))

    assert (response.error_code, response.session_id, partitions_in(response)) == (NONE, 0, [])
    assert (await topic.fetch((session_id, 1))).error_code == ErrorCode.fetch_session_id_not_found


async def test_full_epochs_forgive_an_unknown_id(topic: Topic) -> None:
    assert (await topic.fetch((123_456_789, -1), [(0, 0)])).error_code == NONE
    response = await topic.fetch((123_456_789, 0), [(0, 0)])
    assert response.error_code == NONE
    assert response.session_id > 0


async def test_a_session_is_not_tied_to_its_connection(topic: Topic) -> None:
    session_id = await topic.session((0, 0))

    async with dial(topic.address) as other:
        response = await topic.fetch((session_id, 1), raw=other)

    assert (response.error_code, response.session_id) == (NONE, session_id)


async def test_an_error_is_repeated(topic: Topic) -> None:
    session_id = await topic.session((0, 0))

    first = await topic.fetch((session_id, 1), [(7, 0)])
    second = await topic.fetch((session_id, 2))

    for response in (first, second):
        assert response.error_code == NONE
        assert partitions_in(response) == [7]
        assert partitions_of(response)[7].error_code == ErrorCode.unknown_topic_or_partition


async def test_offset_out_of_range_is_returned_at_once(topic: Topic) -> None:
    session_id = await topic.session((0, 0))

    with trio.fail_after(5):
        response = await topic.fetch((session_id, 1), [(0, 99)], max_wait=20_000)

    data = partitions_of(response)[0]
    assert (data.error_code, data.high_watermark) == (ErrorCode.offset_out_of_range, -1)
    assert partitions_in(await topic.fetch((session_id, 2), [(0, 0)])) == [
        0
    ]  # recovered: included, though nothing is new


async def test_an_epoch_from_the_future_is_75(topic: Topic) -> None:
    topic.leader_epoch = 1000

    response = await topic.fetch((0, -1), [(0, 0)])

    assert partitions_of(response)[0].error_code == ErrorCode.unknown_leader_epoch


async def test_an_unknown_topic_stays_in_the_session(topic: Topic) -> None:
    session_id = await topic.session((0, 0))
    unknown = attrs.evolve(topic, name=f"none-{uuid4()}", id=uuid4())
    error = ErrorCode.unknown_topic_or_partition if topic.version < 13 else ErrorCode.unknown_topic_id

    first = await unknown.fetch((session_id, 1), [(0, 0)])
    second = await topic.fetch((session_id, 2))

    for response in (first, second):
        assert [partition.error_code for partition in partitions_of(response).values()] == [error]
    assert partitions_in(await unknown.fetch((session_id, 3), forget=[0])) == []


async def test_an_idle_fetch_is_held_for_its_wait_and_not_longer(topic: Topic) -> None:
    session_id = await topic.session((0, 0))
    started_s = trio.current_time()

    response = await topic.fetch((session_id, 1), max_wait=400)

    assert partitions_in(response) == []
    assert 0.35 <= trio.current_time() - started_s < 5


async def test_waiting_fetch_completes_when_records_arrive(topic: Topic) -> None:
    session_id = await topic.session((0, 0), (1, 0))
    await topic.send_fetch((session_id, 1), max_wait=20_000)
    await trio.sleep(0.2)
    await topic.produce(1, b"x")

    with trio.fail_after(5):
        response = await topic.raw.receive()

    assert partitions_in(response) == [1]


async def test_the_held_one_of_two_fetches_of_a_session_is_71(topic: Topic) -> None:
    session_id = await topic.session((0, 0))
    await topic.send_fetch((session_id, 1), max_wait=20_000)
    await trio.sleep(0.2)

    async with dial(topic.address) as other:
        overtaking = await topic.fetch((session_id, 2), raw=other)
    await topic.produce(0, b"x")
    overtaken = await topic.raw.receive()

    assert overtaking.error_code == NONE
    assert (overtaken.error_code, overtaken.session_id) == (ErrorCode.invalid_fetch_session_epoch, session_id)
    assert partitions_in(overtaken) == []


async def test_first_batch_is_whole_despite_a_small_limit_and_partitions_take_turns(
    topic: Topic,
) -> None:
    for partition in (0, 1, 2):
        await topic.produce(partition, bytes(2000))
    session_id = (await topic.fetch((0, 0), [(0, 1), (1, 1), (2, 1)])).session_id

    first = await topic.fetch((session_id, 1), [(0, 0), (1, 0), (2, 0)], max_bytes=100)
    second = await topic.fetch((session_id, 2), max_bytes=100)
    third = await topic.fetch((session_id, 3), max_bytes=100)

    assert [partitions_in(response) for response in (first, second, third)] == [[0], [1], [2]]
    assert len(batches_in(partitions_of(first)[0].records)) == 1


async def test_a_cut_tail_is_left_for_the_next_fetch(topic: Topic) -> None:
    for _ in range(3):
        await topic.produce(0, bytes(1000))

    response = await topic.fetch((0, -1), [(0, 0)], max_bytes=1500)

    records = partitions_of(response)[0].records
    assert len(records) == 1500
    assert len(batches_in(records[: 12 + int.from_bytes(records[8:12], "big")])) == 1


async def test_responses_on_one_connection_keep_request_order(topic: Topic) -> None:
    session_id = await topic.session((0, 0))
    await topic.send_fetch((session_id, 1), max_wait=300)
    await topic.raw.send("metadata", 12, {"topics": []})

    held = await topic.raw.receive()
    after = await topic.raw.receive()

    assert held.session_id == session_id
    assert after.topics == ()


async def test_versions_not_served_close_the_connection_but_for_api_versions(bootstrap: str) -> None:
    async with dial(bootstrap) as raw:
        await raw.send_frame(bytes.fromhex("0000000b 0012 0063 00000007 ffff 00"))
        frame = await raw.receive_frame()
        assert frame is not None
        assert frame[:10] == bytes.fromhex("00000007 0023 00000001")
        await raw.send_frame(bytes.fromhex("0000000b 0001 0063 00000008 ffff 00"))
        assert await raw.receive_frame() is None
