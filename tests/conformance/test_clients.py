"""Each real client does all that clients do, directly and through Sidefetch, with equal results."""

import pytest

from tests.clients.conversation import Client
from tests.kafka.admin import Admin, unique
from tests.kafka.records import Filled, by_partition, sendable_records

pytestmark = pytest.mark.kafka

FEW = pytest.param(3, marks=pytest.mark.long)
MANY = pytest.param(30, marks=pytest.mark.long)


@pytest.mark.parametrize("partitions", [3, MANY])
def test_reading_assigned_partitions_returns_all_produced_records(
    client: Client, bootstrap: str, filled: Filled, partitions: int
) -> None:
    topic, produced = filled(partitions)

    read = client.read(bootstrap, topic, range(partitions), len(produced))

    assert by_partition(read) == by_partition(produced)


@pytest.mark.each_once
@pytest.mark.parametrize("partitions", [FEW, 30])
def test_group_consumer_resumes_from_committed_offsets_after_restart(
    client: Client, bootstrap: str, filled: Filled, partitions: int
) -> None:
    topic, produced = filled(partitions)
    group = unique("group")

    first = list(client.read_in_group(bootstrap, topic, group, len(produced) // 2))
    client.restart()
    second = client.read_in_group(bootstrap, topic, group, len(produced) - len(first))

    assert len(first) >= len(produced) // 2
    assert by_partition(first + second) == by_partition(produced)


@pytest.mark.long
def test_creates_a_topic_produces_lists_offsets_and_deletes_it(
    client: Client, bootstrap: str, admin: Admin
) -> None:
    topic = unique("made-by-client")
    records = sendable_records(100, partitions=3)

    client.create_topic(bootstrap, topic, partitions=3)
    admin.wait_until_known(topic, partitions=3)
    acknowledged = client.produce(bootstrap, topic, records)
    offsets = client.offsets(bootstrap, topic)
    read = client.read(bootstrap, topic, range(3), len(records))
    client.delete_topic(bootstrap, topic)
    admin.wait_until_gone(topic)

    assert sorted(acknowledged) == sorted((record.partition, record.offset) for record in records)
    assert offsets == {0: (0, 34), 1: (0, 33), 2: (0, 33)}
    assert by_partition(read) == by_partition(records)
