"""A real client that is not read for, and one whose every answer is compared with the broker's own."""

import re
from collections.abc import Callable

import pytest

from tests.clients.conversation import Client, Task
from tests.conformance.conftest import Filled
from tests.kafka.admin import eventually
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import Record, by_partition
from tests.sidefetch import Sidefetch
from tests.tap import SeenFetch

pytestmark = pytest.mark.kafka

PARTITIONS = 30


@pytest.fixture
def reader(programs: Callable[[str], Client]) -> Client:
    return programs("librdkafka")


@pytest.mark.parametrize("bypass", ["all", "client:on-its-own", "topic:"])
def test_a_client_that_is_bypassed_fetches_as_it_would_directly(
    reader: Client, kafka: KafkaCluster, filled: Filled, bypass: str
) -> None:
    topic, produced = filled(PARTITIONS)
    options = ("--bypass", bypass + topic if bypass == "topic:" else bypass)

    with kafka.tap() as tap, Sidefetch(tap.bootstrap, options=options) as sidefetch:
        reading = _reading(reader, sidefetch, topic, produced)
        read = len(tap.answered())
        eventually(lambda: len(tap.answered()) >= read + 15, "15 idle fetches")
        reading.stop()
        fetches = tap.fetches

    assert by_partition(reading.records) == by_partition(produced)
    assert {(fetch.client_id, fetch.session_id, fetch.epoch) for fetch in fetches} == {("on-its-own", 0, -1)}


def test_what_a_client_is_read_is_what_the_brokers_have(
    reader: Client, kafka: KafkaCluster, filled: Filled
) -> None:
    topic, produced = filled(PARTITIONS)

    with kafka.tap() as tap, Sidefetch(tap.bootstrap, options=("--verify", "1")) as sidefetch:
        reading = _reading(reader, sidefetch, topic, produced)
        eventually(lambda: _brokers_asked(tap.answered()) == len(kafka.brokers), "each broker asked again")
        reading.stop()
        assert sidefetch.process.stop(10) == 0
        log = sidefetch.log_text()

    assert by_partition(reading.records) == by_partition(produced)
    (verified,) = re.findall(r"stopped .*\bverified=(\d+)", log)
    assert int(verified) > 0
    assert "verify_differences" not in log
    assert "verify-" not in log


def _reading(reader: Client, sidefetch: Sidefetch, topic: str, produced: list[Record]) -> Task:
    """The client has read all that there is, and waits for more."""
    every = list(range(PARTITIONS))
    more = {"partitions": every, "count": len(produced) + 1, "wait_ms": 100, "client_id": "on-its-own"}
    reading = reader.begin("read", sidefetch.bootstrap, topic, **more)
    reading.wait_for(len(produced))
    return reading


def _brokers_asked(fetches: list[SeenFetch]) -> int:
    return len({fetch.port for fetch in fetches if fetch.client_id == "sidefetch-verify"})
