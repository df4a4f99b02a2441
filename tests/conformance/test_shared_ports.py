"""Real clients of two processes that share their ports: each of the two is killed while they read."""

from collections.abc import Callable, Iterator

import pytest

from tests.clients.conversation import Client
from tests.kafka.admin import Admin, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import by_partition
from tests.sidefetch import Sidefetch

pytestmark = [pytest.mark.kafka, pytest.mark.in_turn]

SHARED = ("--share-ports", "on")
PARTITIONS = 3


@pytest.fixture(scope="module")
def both(kafka: KafkaCluster) -> Iterator[tuple[Sidefetch, Sidefetch]]:
    with (
        Sidefetch(kafka.bootstrap, options=SHARED) as one,
        Sidefetch(kafka.bootstrap, options=SHARED, port=one.port) as another,
    ):
        yield one, another


@pytest.mark.parametrize("name", ["librdkafka", "java"])
def test_a_client_reads_all_while_one_process_after_the_other_is_killed(
    name: str, programs: Callable[[str], Client], both: tuple[Sidefetch, Sidefetch], admin: Admin
) -> None:
    """So all it is connected to is killed once. Java's has sessions, which the other process does not know."""
    topic = admin.create_topic(unique("shared"), assignment=[[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    produced = admin.produce_known(topic, 3_000, PARTITIONS)

    reading = programs(name).begin(
        "read", both[0].bootstrap, topic, partitions=list(range(PARTITIONS)), count=3_000 + 600, wait_ms=200
    )
    for each in both:
        reading.wait_for(len(produced) // 2)
        each.kill()
        produced += admin.produce_known(topic, 300, PARTITIONS, first=len(produced))
        reading.wait_for(len(produced))
        each.start()
    reading.wait()

    assert by_partition(reading.records) == by_partition(produced)
