"""SIGTERM comes to Sidefetch and to the application beside it at the same moment, and that one takes its time."""

import signal
from collections.abc import Callable

import pytest
from kafka import KafkaConsumer, TopicPartition

from tests.clients.conversation import Client
from tests.kafka.admin import Admin, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import by_partition
from tests.sidefetch import Sidefetch

pytestmark = pytest.mark.kafka

CLIENTS = ("java-0.10.2.2", "kafka-python", "kafkajs", "librdkafka")
GRACE_S = 60.0
"""Nobody waits for it."""
FIRST, LAST = 240, 60


@pytest.fixture(scope="module")
def operator(kafka4: KafkaCluster) -> Admin:
    return Admin(kafka4)


def assert_left_in_good_order(sidefetch: Sidefetch) -> None:
    assert sidefetch.process.wait(10) == 0
    assert "clients_left=0" in sidefetch.log_text().splitlines()[-1]


@pytest.mark.in_turn
@pytest.mark.parametrize("name", CLIENTS)
def test_group_member_reads_commits_and_leaves_after_sigterm(
    name: str, programs: Callable[[str], Client], kafka4: KafkaCluster, operator: Admin
) -> None:
    topic, group = operator.create_topic(unique("drained"), 3), unique("group")
    produced = operator.produce_known(topic, FIRST, 3)

    with Sidefetch(kafka4.bootstrap, grace_s=GRACE_S) as sidefetch:
        member = programs(name).begin("group", sidefetch.bootstrap, topic, group=group, count=FIRST + LAST)
        member.wait_for(FIRST)
        joined = operator.members(group)
        sidefetch.process.send(signal.SIGTERM)
        produced += operator.produce_known(topic, LAST, 3, first=FIRST)
        member.wait()
        left, committed = operator.members(group), operator.committed(group, topic)
        assert_left_in_good_order(sidefetch)

    assert (joined, left) == (1, 0)
    assert committed == dict.fromkeys(range(3), (FIRST + LAST) // 3)
    offsets = {
        partition: [each.offset for each in records] for partition, records in by_partition(member.records).items()
    }
    assert offsets == {partition: list(range((FIRST + LAST) // 3)) for partition in range(3)}


def test_client_finds_its_coordinator_after_sigterm(kafka4: KafkaCluster, operator: Admin) -> None:
    topic, group = operator.create_topic(unique("drained"), 3), unique("group")
    operator.produce_known(topic, FIRST, 3)

    with Sidefetch(kafka4.bootstrap, grace_s=GRACE_S) as sidefetch:
        consumer = KafkaConsumer(
            bootstrap_servers=sidefetch.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        sidefetch.process.send(signal.SIGTERM)
        consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
        read = 0
        while read < FIRST:
            read += sum(map(len, consumer.poll(timeout_ms=1000).values()))
        consumer.commit()
        consumer.close(autocommit=False)
        assert_left_in_good_order(sidefetch)

    assert operator.committed(group, topic) == dict.fromkeys(range(3), FIRST // 3)
