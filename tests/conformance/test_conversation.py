"""The same conversation on a socket with a broker, and with Sidefetch in front of it, for every version of Fetch.

The responses may differ in ``ALLOWED`` only.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any, Final
from uuid import UUID

import pytest
import trio

from proxy.demo.client import connect
from tests.conformance.raw import value_batch
from tests.conformance.talking import PARTITIONS, Side, address_of, ask, identity_of, plain, produce_transactions
from tests.kafka.admin import Admin
from tests.kafka.cluster import KafkaCluster
from tests.sidefetch import Sidefetch

pytestmark = pytest.mark.kafka


VERSIONS: Final = range(4, 19)
NOWHERE: Final = UUID(int=0xBEEF)


@pytest.fixture(scope="module")
def topic(kafka: KafkaCluster, admin: Admin) -> str:
    """Three partitions led by broker 1, with plain and transactional records, some of them aborted."""
    name = admin.create_topic("conversation", PARTITIONS, assignment=[[1, 2, 3]] * PARTITIONS)
    produce_transactions(kafka, name)
    return name


@pytest.fixture(scope="module")
def sidefetch(kafka: KafkaCluster) -> Iterator[Sidefetch]:
    with Sidefetch(kafka.bootstrap) as started:
        yield started


@pytest.fixture(params=VERSIONS)
async def sides(
    request: pytest.FixtureRequest, kafka: KafkaCluster, sidefetch: Sidefetch
) -> AsyncIterator[tuple[Side, Side]]:
    version = request.param
    async with connect(kafka.bootstrap) as raw:
        served = {each.api_key: each for each in (await raw.call("api_versions", 0, {})).api_keys}[1]
    if not served.min_version <= version <= served.max_version:
        pytest.skip(f"Kafka {kafka.version} does not serve Fetch v{version}")
    async with AsyncExitStack() as stack:
        direct = await stack.enter_async_context(connect(await address_of(kafka.bootstrap, 1)))
        through = await stack.enter_async_context(connect(await address_of(sidefetch.bootstrap, 1)))
        yield Side(direct, version), Side(through, version)


async def test_responses_through_sidefetch_equal_those_of_broker(
    sides: tuple[Side, Side], topic: str, kafka: KafkaCluster
) -> None:
    async with connect(await address_of(kafka.bootstrap, 1)) as raw:
        described = (await raw.call("metadata", 12, {"topics": [{"name": topic}]})).topics[0]
    identity = {"topic": topic, "topic_id": described.topic_id}
    epoch = described.partitions[0].leader_epoch
    end = [each.high_watermark for each in await latest(sides[0], identity)]
    everything = [ask(partition, 0) for partition in range(PARTITIONS)]
    idle = [ask(partition, end[partition]) for partition in range(PARTITIONS)]
    script: dict[str, dict[str, Any]] = {
        "all that there is": {"asks": everything},
        "nothing new": {"asks": idle},
        "nothing new again": {"asks": idle},
        "one partition moved back": {"asks": [ask(0, end[0] - 2), *idle[1:]]},
        "in another order": {"asks": [idle[2], everything[0], idle[1]]},
        "fewer partitions": {"asks": idle[:2]},
        "more partitions": {"asks": everything},
        "an offset out of range": {"asks": [idle[0], ask(1, end[1] + 1_000)]},
        "and back in range": {"asks": idle},
        "a partition that is not there": {"asks": [idle[0], ask(7, 0)]},
        "a topic that is not there": {"asks": [ask(0, 0)], "identity": {"topic": "nowhere", "topic_id": NOWHERE}},
        "after that topic": {"asks": idle},
        "committed records only": {"asks": everything, "isolation_level": 1},
        "committed records only, nothing new": {"asks": idle, "isolation_level": 1},
        "all records again": {"asks": everything},
        "a wait that is over at once": {"asks": idle, "max_wait": 0},
        "a current leader epoch": {"asks": [ask(0, 0, epoch=epoch)]},
        "an old leader epoch": {"asks": [ask(0, 0, epoch=epoch - 1)]},
        "a future leader epoch": {"asks": [ask(0, 0, epoch=epoch + 1)]},
        "a session that was never granted": {"asks": idle, "session_id": 5, "session_epoch": 3},
        "no partitions": {"asks": []},
    }
    for step, said in script.items():
        reported = {"identity": identity, **said}
        named = reported.pop("identity")
        answers = [plain(await side.fetch(reported["asks"], named, **without(reported, "asks"))) for side in sides]
        assert answers[1] == answers[0], step


async def test_a_limit_that_holds_one_batch_lets_every_partition_have_its_turn(
    sides: tuple[Side, Side], topic: str, kafka: KafkaCluster
) -> None:
    """Brokers read a full fetch in the client's order, a session in turns: so a client need not rotate."""
    identity = await identity_of(kafka, topic)
    everything = [ask(partition, 0) for partition in range(PARTITIONS)]
    served = []
    for _ in range(2 + PARTITIONS):
        response = await sides[1].fetch(everything, identity, max_bytes=1)
        partitions = response.responses[0].partitions
        assert [each.partition_index for each in partitions] == list(range(PARTITIONS))
        served.append([each.partition_index for each in partitions if each.records])
    assert all(len(each) == 1 for each in served)
    assert {each[0] for each in served} == set(range(PARTITIONS))


async def test_a_record_that_comes_while_the_fetch_waits_ends_the_wait(
    sides: tuple[Side, Side], topic: str, kafka: KafkaCluster
) -> None:
    async with connect(await address_of(kafka.bootstrap, 1)) as raw:
        described = (await raw.call("metadata", 12, {"topics": [{"name": topic}]})).topics[0]
        identity = {"topic": topic, "topic_id": described.topic_id}
        end = [each.high_watermark for each in await latest(sides[0], identity)]
        idle = [ask(partition, end[partition]) for partition in range(PARTITIONS)]
        waiting = sides[1]
        for _ in range(3):
            await waiting.fetch(idle, identity)
        answers: list[Any] = []

        async def wait() -> None:
            answers.append(await waiting.fetch(idle, identity, max_wait=15_000))

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait)
                await trio.sleep(0.2)
                data = [{"index": 2, "records": value_batch(b"news")}]
                produced = {"acks": -1, "timeout": 5000, "topic_data": [{"name": topic, "partition_data": data}]}
                await raw.call("produce", 9, produced)
    partitions = answers[0].responses[0].partitions
    assert [each.partition_index for each in partitions] == [0, 1, 2]
    assert [bool(each.records) for each in partitions] == [False, False, True]


def without(said: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in said.items() if key != name}


async def latest(side: Side, identity: dict[str, Any]) -> list[Any]:
    response = await side.fetch([ask(partition, 0) for partition in range(PARTITIONS)], identity)
    return list(response.responses[0].partitions)
