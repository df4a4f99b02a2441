"""Clients that use sessions get them from Sidefetch, with the responses that a broker would send."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import attrs
import pytest
import trio

from proxy.errors import ErrorCode
from tests.clients.conversation import Client
from tests.conformance.judging import assert_repeats_only_what_was_not_committed, have_all, produce_until
from tests.conformance.raw import QUICK, dial, tapped, value_batch
from tests.conformance.talking import Side, address_of, ask, identity_of, plain, produce_transactions
from tests.kafka.admin import Admin, eventually, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import by_partition
from tests.sidefetch import Sidefetch
from tests.tap import SeenFetch

pytestmark = pytest.mark.kafka

PARTITIONS: Final = 3
VERSIONS: Final = range(7, 19)


# ----------------------------------------------------------------- one answer after another, beside a broker's own


@attrs.define
class Within:
    """One side's session, as a client keeps it."""

    side: Side
    identity: dict[str, Any]
    session_id: int = 0
    epoch: int = 0

    async def fetch(
        self, asks: Sequence[dict[str, Any]], forget: Sequence[int] = (), *, ahead: int = 0, **options: Any
    ) -> dict[str, Any]:
        """The answer, but for the session's number and the order of partitions: brokers turn theirs."""
        forgotten = [{**self.identity, "partitions": list(forget)}] if forget else []
        response = await self.side.fetch(
            list(asks),
            self.identity,
            session_id=self.session_id,
            session_epoch=self.epoch + ahead,
            forgotten_topics_data=forgotten,
            **options,
        )
        if not response.error_code:
            self.session_id, self.epoch = response.session_id, self.epoch + 1 if response.session_id else 0
        reported: dict[str, Any] = plain(response)
        parts = [part for topic in reported["responses"] for part in topic["partitions"]]
        parts.sort(key=lambda part: part["partition_index"])
        return {"error": reported["error_code"], "has_session": bool(response.session_id), "partitions": parts}


@pytest.fixture(scope="module")
def quick(kafka: KafkaCluster) -> Iterator[Sidefetch]:
    with Sidefetch(kafka.bootstrap, options=QUICK) as started:
        yield started


@pytest.fixture(scope="module")
def topic(kafka: KafkaCluster, admin: Admin) -> str:
    """Three partitions led by broker 1, with plain and transactional records, some of them aborted."""
    name = admin.create_topic(unique("within"), PARTITIONS, assignment=[[1, 2, 3]] * PARTITIONS)
    admin.produce_known(name, 300, PARTITIONS)
    produce_transactions(kafka, name)
    return name


@pytest.fixture(params=VERSIONS)
async def sides(
    request: pytest.FixtureRequest, kafka: KafkaCluster, quick: Sidefetch, topic: str
) -> AsyncIterator[tuple[Within, Within]]:
    version = request.param
    async with AsyncExitStack() as stack:
        direct = await stack.enter_async_context(dial(await address_of(kafka.bootstrap, 1)))
        through = await stack.enter_async_context(dial(await address_of(quick.bootstrap, 1)))
        served = {each.api_key: each for each in (await direct.call("api_versions", 0, {})).api_keys}[1]
        if version > served.max_version:
            pytest.skip(f"Kafka {kafka.version} does not serve Fetch v{version}")
        identity = await identity_of(kafka, topic)
        yield Within(Side(direct, version), identity), Within(Side(through, version), identity)


async def positions(within: Within) -> list[tuple[int, int]]:
    """Return the log start and end of each partition, from the leader."""
    found = []
    for which in (-2, -1):
        asks = [{"partition_index": partition, "timestamp": which} for partition in range(PARTITIONS)]
        request = {"topics": [{"name": within.identity["topic"], "partitions": asks}]}
        answer = await within.side.raw.call("list_offsets", 4, request)
        listed = sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)
        found.append([each.offset for each in listed])
    return list(zip(*found, strict=True))


@pytest.mark.each_once
async def test_responses_within_session_equal_those_of_broker(
    sides: tuple[Within, Within], topic: str, admin: Admin
) -> None:
    start, end = zip(*await positions(sides[0]), strict=True)
    idle = [ask(partition, end[partition]) for partition in range(PARTITIONS)]
    out_of_range = ask(1, end[1] + 1_000)
    script: dict[str, Mapping[str, Any]] = {
        "a session of three at their end": {"asks": idle},
        "nothing new": {},
        "one moved back": {"asks": [ask(0, end[0] - 2)]},
        "the same again": {},
        "on to the end": {"asks": [idle[0]]},
        "nothing new again": {},
        "one is forgotten": {"forget": [1]},
        "and comes back": {"asks": [idle[1]]},
        "without a wait": {"max_wait": 0},
        "out of range": {"asks": [out_of_range]},
        "still out of range": {},
        "back in range": {"asks": [idle[1]]},
        "nothing is out of range": {},
        "committed records only": {"isolation_level": 1},
        "from the start, committed records only": {"asks": [ask(2, start[2])], "isolation_level": 1},
        "all at once": {"asks": [ask(partition, start[partition]) for partition in range(PARTITIONS)]},
        "all to the end": {"asks": idle},
        "one that is not there": {"asks": [ask(7, 0)]},
        "it is still not there": {},
        "it is forgotten, and one moved back": {"asks": [ask(1, end[1] - 1)], "forget": [7]},
        "the end once more": {"asks": [idle[1]]},
        "an epoch too far": {"ahead": 1},
        "the right epoch": {},
        "all are forgotten": {"forget": [0, 1, 2]},
        "a session of one": {"asks": idle[:1]},
        "two more": {"asks": idle[1:]},
        "nothing after that": {},
    }
    for step, said in script.items():
        answers = [await side.fetch(**{"asks": (), **said}) for side in sides]
        assert answers[1] == answers[0], step

    admin.delete_records(topic, 2, start[2] + 1)
    answers = [await until_changed(side) for side in sides]
    assert answers[1] == answers[0]
    assert [part["log_start_offset"] for part in answers[1]["partitions"]] == [start[2] + 1]


async def until_changed(side: Within) -> dict[str, Any]:
    with trio.fail_after(20):
        while not (answer := await side.fetch(()))["partitions"]:
            pass
    return answer


async def test_a_record_comes_within_a_session_that_waits_and_on_another_connection(
    sides: tuple[Within, Within], topic: str, kafka: KafkaCluster, quick: Sidefetch
) -> None:
    _, side = sides
    end = [last for _, last in await positions(side)]
    await side.fetch([ask(partition, end[partition]) for partition in range(PARTITIONS)])
    answers: list[dict[str, Any]] = []

    async def wait() -> None:
        answers.append(await side.fetch((), max_wait=15_000))

    async def produce(partition: int) -> None:
        data = [{"index": partition, "records": value_batch(b"news")}]
        said = {"acks": -1, "timeout": 5000, "topic_data": [{"name": topic, "partition_data": data}]}
        async with dial(await address_of(kafka.bootstrap, 1)) as raw:
            await raw.call("produce", 7, said)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(0.2)
            await produce(2)
    async with dial(await address_of(quick.bootstrap, 1)) as another:
        side.side = attrs.evolve(side.side, raw=another)
        answers.append(await side.fetch([ask(2, end[2] + 1)]))
        await produce(0)
        answers.append(await until_changed(side))

    reported = [
        [(part["partition_index"], bool(part["records"])) for part in each["partitions"]] for each in answers
    ]
    assert reported == [[(2, True)], [], [(0, True)]]


# --------------------------------------------------------------------------------------- Kafka's own consumers


JAVA = pytest.mark.parametrize("name", ["java", "java-2.0.1"])


def by_port(fetches: Sequence[SeenFetch]) -> list[list[SeenFetch]]:
    ports = {fetch.port for fetch in fetches}
    return [[fetch for fetch in fetches if fetch.port == port] for port in sorted(ports)]


@JAVA
@pytest.mark.in_turn
def test_java_consumer_gets_one_session_per_broker_and_sends_only_changes(
    name: str, kafka: KafkaCluster, admin: Admin
) -> None:
    partitions = 30
    topic, produced = admin.filled_topic("java-sessions", partitions)

    with Client(name) as client, tapped(kafka.bootstrap) as (_, tap, bootstrap):
        reading = client.begin(
            "read", bootstrap, topic, partitions=list(range(partitions)), count=len(produced) + 1, wait_ms=100
        )
        reading.wait_for(len(produced))
        read = len(tap.answered())
        eventually(lambda: len(tap.answered()) >= read + 60, "60 idle fetches")
        idle = tap.answered()[read + 30 :]
        produced += admin.produce_known(topic, 1, partitions, first=len(produced) // partitions * partitions + 20)
        reading.wait()
        fetches = tap.answered()

    assert by_partition(reading.records) == by_partition(produced)
    assert {fetch.error for fetch in fetches} == {0}
    assert (max(fetch.version for fetch in fetches) >= 13) == (name == "java")
    for at_broker in by_port(fetches):
        first, *within = at_broker
        assert (first.session_id, first.epoch, first.granted_id > 0) == (0, 0, True)
        live = [fetch for fetch in within if fetch.epoch != -1]
        assert [fetch.epoch for fetch in live] == list(range(1, len(live) + 1))
        assert {fetch.granted_id for fetch in live} == {first.granted_id}
    assert {(fetch.named, fetch.forgotten) for fetch in idle if fetch.is_incremental} == {(0, 0)}
    assert max(fetch.request_bytes + fetch.response_bytes for fetch in idle) <= 250


@JAVA
@pytest.mark.in_turn
def test_without_sessions_javas_consumer_reads_on_by_full_fetches(
    name: str, kafka: KafkaCluster, admin: Admin
) -> None:
    topic, produced = admin.filled_topic("java-none", 3)

    with Client(name) as client, tapped(kafka.bootstrap, "--client-sessions", "0") as (_, tap, bootstrap):
        read = client.read(bootstrap, topic, range(3), len(produced))
        fetches = tap.answered()

    assert by_partition(read) == by_partition(produced)
    assert {(fetch.epoch, fetch.granted_id) for fetch in fetches if fetch.epoch >= 0} == {(0, 0)}


@JAVA
@pytest.mark.in_turn
def test_six_sessions_in_two_slots_lose_no_records(name: str, kafka: KafkaCluster, admin: Admin) -> None:
    topic, produced = admin.filled_topic("java-crowd", 30)

    with (
        Client(name) as one,
        Client(name) as another,
        tapped(kafka.bootstrap, "--client-sessions", "2") as (_, tap, bootstrap),
    ):
        tasks = [
            each.begin("read", bootstrap, topic, partitions=list(range(30)), count=len(produced))
            for each in (one, another)
        ]
        for task in tasks:
            task.wait()
        granted = {fetch.granted_id for fetch in tap.answered()}

    for task in tasks:
        assert by_partition(task.records) == by_partition(produced)
    assert 0 in granted
    assert len(granted) > 1


@pytest.mark.long
@JAVA
@pytest.mark.in_turn
def test_group_that_rebalances_within_its_sessions_loses_and_repeats_nothing(
    name: str, kafka: KafkaCluster, admin: Admin
) -> None:
    topic = admin.create_topic(unique("java-shared"), assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]] * 2)
    group = unique("group")
    produced = admin.produce_known(topic, 600, 6)
    forever = 10**9

    with (
        Client(name) as first,
        Client(name) as second,
        Client(name) as third,
        tapped(kafka.bootstrap) as (_, tap, bootstrap),
    ):
        tasks = [first.begin("group", bootstrap, topic, group=group, count=1_500)]
        tasks[0].wait_for(600)
        tasks.append(second.begin("group", bootstrap, topic, group=group, count=forever))
        produced += produce_until(admin, topic, produced, tasks[1], 100)
        shared = [fetch for fetch in tap.answered() if fetch.is_incremental and fetch.forgotten]
        produced += produce_until(admin, topic, produced, tasks[0], 1_500)
        tasks[0].wait()
        produced += produce_until(admin, topic, produced, tasks[1], len(tasks[1].records) + 300)
        tasks.append(third.begin("group", bootstrap, topic, group=group, count=forever))
        produced += produce_until(admin, topic, produced, tasks[2], 100)
        eventually(lambda: have_all(tasks, produced), "all records read by someone")
        fetches = tap.answered()
        for client in (second, third):
            client.kill()
        for task in tasks[1:]:
            task.take_what_is_there()

    assert have_all(tasks, produced)
    assert_repeats_only_what_was_not_committed(tasks)
    assert shared, "partitions were given up within a session"
    assert any(fetch.is_incremental and fetch.named for fetch in fetches)
    # Before 2.3, a consumer may ask in a session before it has taken in the last answer there (KAFKA-8052).
    its_own = {ErrorCode.invalid_fetch_session_epoch} if name == "java-2.0.1" else set()
    assert {fetch.error for fetch in fetches} - its_own == {ErrorCode.none}
