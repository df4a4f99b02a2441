"""Real clients of a Sidefetch that allows only some APIs."""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.clients.conversation import Client
from tests.kafka.admin import unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import Filled, by_partition
from tests.sidefetch import Sidefetch

pytestmark = [pytest.mark.kafka, pytest.mark.each_once]

PARTITIONS = 30


@pytest.fixture
def sidefetch(kafka: KafkaCluster) -> Iterator[Sidefetch]:
    with Sidefetch(kafka.bootstrap, options=("--allowed-apis", "clients,describe")) as running:
        yield running


def test_clients_read_and_describe_and_cannot_change_topics(
    programs: Callable[[str], Client], sidefetch: Sidefetch, filled: Filled
) -> None:
    topic, produced = filled(PARTITIONS)
    reading = programs("librdkafka").begin(
        "read", sidefetch.bootstrap, topic, partitions=list(range(PARTITIONS)), count=len(produced)
    )
    reading.wait_for(len(produced))
    client = AdminClient({"bootstrap.servers": sidefetch.bootstrap, "log_level": 0})

    assert by_partition(reading.records) == by_partition(produced)
    assert client.list_consumer_groups().result().errors == []
    created = client.create_topics([NewTopic(name := unique("new"), 1)], request_timeout=10)[name]
    with pytest.raises(KafkaException) as refused:
        created.result()
    assert refused.value.args[0].code() == KafkaError._UNSUPPORTED_FEATURE
