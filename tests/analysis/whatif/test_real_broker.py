"""The simulated session cache does the same as a real broker for the same requests, given the ids it granted.

Sessions of consumers and of followers are created, used, resized and closed at random. In the short form, slots run
out and followers evict consumers; the cases that take 120 s (sessions that nobody uses, larger sessions against
older
ones) are in the long form.
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from random import Random
from typing import Any, Final

import attrs
import pytest
import trio

from proxy.analysis.whatif.broker import SessionCacheModel
from proxy.errors import ErrorCode
from tests.conformance.raw import Raw, dial
from tests.kafka.admin import Admin, eventually, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.metrics import broker_counts

pytestmark = pytest.mark.kafka

NODE: Final = 1
SLOTS: Final = 24
PARTITIONS: Final = 12
FETCH_VERSION: Final = 12
NOT_FOUND: Final = ErrorCode.fetch_session_id_not_found


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """A cluster of its own: without replication, nobody else has sessions there."""
    with KafkaCluster("4.3.1", settings={"max.incremental.fetch.session.cache.slots": SLOTS}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def topic(cluster: KafkaCluster) -> str:
    admin = Admin(cluster)
    return admin.create_topic(unique("slots"), assignment=[[NODE]] * PARTITIONS)


@attrs.define
class Driven:
    """A real broker and a simulated one, which are asked the same."""

    raw: Raw
    topic: str
    simulated: SessionCacheModel
    evicted: list[int]
    """The sessions evicted by the simulation that are not yet known to be gone from the broker, or closed."""
    epochs: dict[int, tuple[int, int]] = attrs.field(factory=dict)
    """Epoch and size by session id, of all that were granted and not closed."""
    refused: int = 0

    async def fetch(
        self, session: tuple[int, int], asks: Sequence[int] = (), forget: Sequence[int] = (), replica: int = -1
    ) -> Any:
        partitions = [
            {"partition": each, "fetch_offset": 0, "partition_max_bytes": 1024, "current_leader_epoch": -1}
            for each in asks
        ]
        request = {
            "replica_id": replica,
            "max_wait": 0,
            "min_bytes": 1,
            "max_bytes": 1024,
            "session_id": session[0],
            "session_epoch": session[1],
            "topics": [{"topic": self.topic, "partitions": partitions}] if asks else [],
            "forgotten_topics_data": [{"topic": self.topic, "partitions": list(forget)}] if forget else [],
        }
        return await self.raw.call("fetch", FETCH_VERSION, request)

    async def create(self, size: int, *, is_follower: bool) -> None:
        now_s = trio.current_time()
        answer = await self.fetch((0, 0), range(size), replica=2 if is_follower else -1)
        assert answer.error_code == ErrorCode.none
        granted = int(answer.session_id)
        assert self.simulated.create(size, now_s, is_follower=is_follower, granted=granted) == granted
        if granted:
            self.epochs[granted] = (1, size)
        else:
            self.refused += 1

    async def use(self, session_id: int, size: int) -> None:
        epoch, before = self.epochs[session_id]
        now_s = trio.current_time()
        answer = await self.fetch((session_id, epoch), range(before, size), range(size, before))
        is_there = self.simulated.use(session_id, size, now_s)
        assert answer.error_code == (ErrorCode.none if is_there else NOT_FOUND)
        if is_there:
            self.epochs[session_id] = (epoch + 1, size)
        else:
            self.evicted.remove(session_id)
            del self.epochs[session_id]

    async def close(self, session_id: int) -> None:
        await self.fetch((session_id, -1))
        if not self.simulated.close(session_id):
            self.evicted.remove(session_id)
        del self.epochs[session_id]

    async def step(self, rng: Random) -> None:
        """Do something by chance."""
        match rng.choices(("consumer", "follower", "use", "close"), (5, 3, 4, 1))[0]:
            case "use" | "close" as what if self.epochs:
                session_id = rng.choice(list(self.epochs))
                if what == "close":
                    await self.close(session_id)
                else:
                    await self.use(session_id, rng.randint(1, PARTITIONS))
            case kind:
                await self.create(rng.randint(1, PARTITIONS), is_follower=kind == "follower")


@pytest.fixture
async def driven(cluster: KafkaCluster, topic: str) -> AsyncIterator[Driven]:
    evicted: list[int] = []
    async with dial(cluster.brokers[NODE].address) as raw:
        driven = Driven(raw, topic, SessionCacheModel(SLOTS, on_eviction=evicted.append), evicted)
        with trio.fail_after(20):
            while any(
                each.error_code for each in (await driven.fetch((0, -1), range(PARTITIONS))).responses[0].partitions
            ):
                await trio.sleep(0.05)
        yield driven
        for session_id in list(driven.epochs):
            await driven.close(session_id)


@pytest.mark.parametrize(
    ("seed", "waits_s"),
    [
        pytest.param(1, [0], id="at once"),
        pytest.param(2, [0, 55, 110, 165, 220, 275, 330], marks=pytest.mark.long, id="for minutes"),
    ],
)
async def test_evictions_are_those_of_a_real_broker(
    seed: int, waits_s: Sequence[int], driven: Driven, cluster: KafkaCluster
) -> None:
    rng, start_s = Random(seed), trio.current_time()
    before = broker_counts(cluster, [NODE])[NODE]
    assert before.sessions == 0
    for wait_s in waits_s:
        await trio.sleep_until(start_s + wait_s)
        for _ in range(150 // len(waits_s) + 30):
            await driven.step(rng)
    simulated = driven.simulated
    eventually(lambda: broker_counts(cluster, [NODE])[NODE].sessions == len(simulated), "as many sessions")

    after = broker_counts(cluster, [NODE])[NODE]
    assert after.evictions - before.evictions == simulated.evictions >= 10
    assert driven.refused == simulated.refusals >= 10
    assert after.session_partitions == simulated.partitions
    for session_id in list(driven.epochs):
        await driven.use(session_id, driven.epochs[session_id][1])
    assert driven.evicted == []
