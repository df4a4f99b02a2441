"""Real clients whose fetches are forwarded or not shared, and clients whose every response is verified."""

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.conversation import Client, Task
from tests.kafka.admin import Admin, eventually, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import Filled, Record, by_partition
from tests.kafka.transactions import Transactors, committed_count, planned
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


def test_verify_finds_no_differences_between_responses_and_brokers(
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


def test_verify_compares_records_that_clients_share(
    programs: Callable[[str], Client], kafka: KafkaCluster, admin: Admin
) -> None:
    """The clients stay until each broker was asked: a verification ends with the client's connection."""
    topic, produced = admin.filled_topic("verified", PARTITIONS, count=300)
    options = ("--share-reads", "principal", "--verify", "1")

    with kafka.tap() as tap, Sidefetch(tap.bootstrap, options=options) as sidefetch:
        readings = [_reading(programs(name), sidefetch, topic, produced) for name in ("java", "librdkafka")]
        eventually(lambda: _brokers_asked(tap.answered()) == len(kafka.brokers), "each broker asked again")
        produced += admin.produce_known(topic, 1, PARTITIONS, first=len(produced))
        for reading in readings:
            assert by_partition(reading.wait()) == by_partition(produced)
        fetches = tap.answered()
        assert sidefetch.process.stop(10) == 0
        log = sidefetch.log_text()

    (verified,) = re.findall(r"stopped .*\bverified=(\d+)", log)
    assert int(verified) > 0
    assert "verify_differences" not in log
    assert "verify-" not in log
    assert {fetch.client_id for fetch in fetches} == {"sidefetch", "sidefetch-verify"}


@pytest.mark.parametrize("share_reads", ["off", "principal"])
def test_verify_finds_no_differences_between_lists_of_aborted_transactions(
    programs: Callable[[str], Client], kafka: KafkaCluster, admin: Admin, share_reads: str
) -> None:
    """Small limits end the client's responses within transactions; a shared log keeps those that it has read."""
    topic, plan = admin.create_topic(unique("aborted")), planned(100, 1)
    transactors = Transactors(kafka.bootstrap, topic)
    transactors.carry_out(plan)
    admin.wait_without_transactions(topic, 0)

    with Sidefetch(kafka.bootstrap, options=("--verify", "1", "--share-reads", share_reads)) as sidefetch:
        small = {"isolation": "read_committed", "chunk_bytes": 1_000, "max_bytes": 2_000}
        read = programs("java").begin(
            "read", sidefetch.bootstrap, topic, partitions=[0], count=committed_count(plan), wait_ms=100, **small
        )
        records = read.wait()
        assert sidefetch.process.stop(10) == 0
        log = sidefetch.log_text()

    assert by_partition(records) == by_partition(transactors.committed)
    (verified,) = re.findall(r"stopped .*\bverified=(\d+)", log)
    assert int(verified) > 3
    assert "verify_differences" not in log


@pytest.mark.in_turn
@pytest.mark.parametrize("rules", ["all", "topic:", "client:counted"])
def test_sharing_that_stops_and_resumes_costs_clients_nothing(
    rules: str, programs: Callable[[str], Client], kafka: KafkaCluster, admin: Admin, tmp_path: Path
) -> None:
    topic, produced = admin.filled_topic("shared-at-times", 3, count=90)
    settings = tmp_path / "sidefetch.toml"
    settings.write_text("")
    options = ("--config", str(settings), "--share-reads", "principal", "--upstream-max-wait", "0.3s")

    with kafka.tap() as tap, Sidefetch(tap.bootstrap, options=options) as sidefetch:
        more = {"partitions": [0, 1, 2], "count": len(produced) + 4 * 90, "wait_ms": 100, "client_id": "counted"}
        readings = [
            programs(name).begin("read", sidefetch.bootstrap, topic, **more) for name in ("java", "librdkafka")
        ]
        for excepted in (rules, "", rules, ""):
            for reading in readings:
                reading.wait_for(len(produced))
            value = excepted + topic if excepted == "topic:" else excepted
            settings.write_text(f'upstream.share-reads-except = "{value}"')
            sidefetch.process.send(signal.SIGHUP)
            _idle(tap, fetches=20)
            recent = {fetch.client_id for fetch in tap.answered()[-6:]}
            assert recent == ({"counted"} if excepted else {"sidefetch"})
            produced += admin.produce_known(topic, 90, 3, first=len(produced))
        for reading in readings:
            assert by_partition(reading.wait()) == by_partition(produced)
        assert sidefetch.log_text().count("settings-reloaded") == 4


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
