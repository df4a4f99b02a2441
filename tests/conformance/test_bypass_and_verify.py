"""A real client that is not read for, and one whose every answer is compared with the broker's own."""

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.conversation import Client, Task
from tests.conformance.conftest import Filled
from tests.kafka.admin import Admin, eventually
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import Record, by_partition
from tests.sidefetch import Sidefetch
from tests.tap import SeenFetch, Tap

pytestmark = [pytest.mark.kafka, pytest.mark.each_once]

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
        _idle(tap, fetches=15)
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


@pytest.mark.in_turn
@pytest.mark.parametrize("name", ["java", "librdkafka"])
def test_bypass_that_comes_and_goes_costs_a_client_nothing(
    name: str, programs: Callable[[str], Client], kafka: KafkaCluster, admin: Admin, tmp_path: Path
) -> None:
    """Java's client asks for sessions: of the broker while it is bypassed, and of Sidefetch, in vain, else."""
    topic, produced = admin.filled_topic("coming-and-going", 3, count=90)
    settings = tmp_path / "sidefetch.toml"
    settings.write_text("")

    with (
        kafka.tap() as tap,
        Sidefetch(tap.bootstrap, options=("--config", str(settings), "--upstream-max-wait", "0.3s")) as sidefetch,
    ):
        more = {"partitions": [0, 1, 2], "count": len(produced) + 4 * 90, "wait_ms": 100, "client_id": "counted"}
        reading = programs(name).begin("read", sidefetch.bootstrap, topic, **more)
        for bypass in ("all", "", "all", ""):
            reading.wait_for(len(produced))
            settings.write_text(f'bypass = "{bypass}"')
            sidefetch.process.send(signal.SIGHUP)
            _idle(tap, fetches=20)
            produced += admin.produce_known(topic, 90, 3, first=len(produced))
        reading.wait()
        assert sidefetch.log_text().count("settings-reloaded") == 4

    assert by_partition(reading.records) == by_partition(produced)


def _reading(reader: Client, sidefetch: Sidefetch, topic: str, produced: list[Record]) -> Task:
    """The client has read all that there is, and waits for more."""
    every = list(range(PARTITIONS))
    more = {"partitions": every, "count": len(produced) + 1, "wait_ms": 100, "client_id": "on-its-own"}
    reading = reader.begin("read", sidefetch.bootstrap, topic, **more)
    reading.wait_for(len(produced))
    return reading


def _idle(tap: Tap, *, fetches: int) -> None:
    """Wait for so many to be answered."""
    seen = len(tap.answered())
    eventually(lambda: len(tap.answered()) >= seen + fetches, "idle fetches")


def _brokers_asked(fetches: list[SeenFetch]) -> int:
    return len({fetch.port for fetch in fetches if fetch.client_id == "sidefetch-verify"})
