"""What check concludes from what it has seen."""

from collections.abc import Mapping

import attrs
import pytest

from proxy.cli.findings import BrokerSeen, ClusterSeen, Finding, judge, kafka_release, verdict
from proxy.config import Address, Config, DownstreamConfig, PortRange, UpstreamConfig

KAFKA = Address("kafka", 9092)
CONFIG = Config(UpstreamConfig(bootstrap_servers=(KAFKA,)))
V43: Mapping[int, tuple[int, int]] = {1: (4, 18), 18: (0, 4)}
V28: Mapping[int, tuple[int, int]] = {1: (0, 12), 18: (0, 3)}


def broker(node: int, versions: Mapping[int, tuple[int, int]] = V43, rack: str | None = "a") -> BrokerSeen:
    return BrokerSeen(node, Address(f"kafka-{node}", 9092), rack, versions)


def found(*brokers: BrokerSeen, config: Config = CONFIG, through: Address = KAFKA) -> list[Finding]:
    return judge(ClusterSeen("id", through, brokers), config, compiled=True)


@pytest.mark.parametrize(
    ("fetch", "api_versions", "release"),
    [
        ((4, 18), (0, 5), "Kafka 4.4 or newer"),
        ((4, 19), (0, 4), "Kafka 4.4 or newer"),
        ((4, 18), (0, 4), "Kafka 4.1 to 4.3"),
        ((4, 17), (0, 4), "Kafka 4.0"),
        ((0, 17), (0, 4), "Kafka 3.9"),
        ((0, 16), (0, 3), "Kafka 3.7 or 3.8"),
        ((0, 15), (0, 3), "Kafka 3.5 or 3.6"),
        ((0, 13), (0, 3), "Kafka 3.1 to 3.4"),
        ((0, 12), (0, 3), "Kafka 2.7 to 3.0"),
        ((0, 5), (0, 1), "Kafka 0.11"),
        ((0, 3), (0, 0), "older than Kafka 0.11"),
    ],
)
def test_the_release_is_guessed_from_the_highest_versions(
    fetch: tuple[int, int], api_versions: tuple[int, int], release: str
) -> None:
    assert kafka_release({1: fetch, 18: api_versions}) == release


def test_three_new_brokers_in_three_racks_are_all_that_is_asked_for() -> None:
    findings = found(broker(2, rack="b"), broker(1, rack="a"), broker(3, rack="c"))

    assert findings == [
        Finding("ok", "incremental sessions by topic id with nodes 1, 2, 3 (Fetch v13 or newer)"),
        Finding(
            "ok", "a moved leader is named, with its address, in the answers of nodes 1, 2, 3 (Fetch v16 or newer)"
        ),
        Finding(
            "ok",
            "clients from Kafka 0.8 on are served: what nodes 1, 2, 3 dropped, such as Fetch below v4, is lifted,"
            " and records are converted",
        ),
        Finding("note", "racks: a, b, c; reads go to the leaders all the same, for now"),
    ]
    assert verdict(findings)


def test_that_conversion_is_slow_is_told_where_there_was_no_compiler() -> None:
    findings = judge(ClusterSeen("id", KAFKA, (broker(1),)), CONFIG, compiled=False)

    (slow,) = [finding for finding in findings if "C compiler" in finding.text]
    assert slow.level == "note"
    assert verdict(findings)


def test_older_brokers_have_sessions_by_name() -> None:
    findings = found(broker(1, V28))

    assert any(f.level == "note" and "by topic name with node 1 (" in f.text for f in findings)
    assert not any(f.level == "ok" for f in findings)
    assert verdict(findings)


@pytest.mark.parametrize(
    ("highest", "level", "told"),
    [
        (13, "ok", "by topic id"),
        (12, "note", "by topic name"),
        (7, "note", "by topic name"),
        (6, "warning", "no incremental sessions"),
        (4, "warning", "no incremental sessions"),
        (3, "failure", "cannot be read"),
    ],
)
def test_what_sessions_there_are_depends_on_the_fetch_version(highest: int, level: str, told: str) -> None:
    findings = found(broker(1, {1: (0, highest), 18: (0, 3)}))

    assert any(finding.level == level and told in finding.text for finding in findings)
    assert verdict(findings) is (level != "failure")


def test_brokers_of_several_releases_are_told_apart() -> None:
    findings = found(broker(1), broker(2, V28), broker(3))

    (note,) = [finding.text for finding in findings if "several releases" in finding.text]
    assert "node 2 Kafka 2.7 to 3.0; nodes 1, 3 Kafka 4.1 to 4.3" in note


def test_missing_racks_are_warned_of() -> None:
    none = found(broker(1, rack=None), broker(2, rack=None))
    some = found(broker(1, rack="a"), broker(2, rack=None))

    assert [f.text for f in none if f.level == "warning"] == [
        "no broker has a rack (broker.rack): none could be told to be closer than the others"
    ]
    assert [f.text for f in some if f.level == "warning"] == [
        "node 2 without a rack (broker.rack), the others in a"
    ]


def test_a_broker_that_was_not_reached_is_a_failure() -> None:
    lost = attrs.evolve(broker(2, {}), problem="connection refused")

    findings = found(broker(1), lost)

    assert findings[-1] == Finding("failure", "node 2 at kafka-2:9092 was not reached: connection refused")
    assert not verdict(findings)


def test_a_cluster_without_brokers_is_a_failure() -> None:
    assert not verdict(found())


def test_brokers_on_loopback_of_another_machine_are_warned_of() -> None:
    here = attrs.evolve(broker(1), address=Address("localhost", 19092))

    assert any("advertised on loopback" in finding.text for finding in found(here))
    assert not any("loopback" in f.text for f in found(here, through=Address("127.0.0.1", 19092)))


def test_a_broker_on_one_of_the_broker_ports_is_warned_of() -> None:
    here = attrs.evolve(broker(1), address=Address("127.0.0.1", 9094))

    assert any("among broker-ports (9093-9192)" in f.text for f in found(here, through=Address("127.0.0.1", 9094)))


def test_more_brokers_than_ports_is_a_failure() -> None:
    config = attrs.evolve(CONFIG, downstream=DownstreamConfig(broker_ports=PortRange(9093, 9094)))

    assert verdict(found(broker(1), broker(2), config=config))
    assert not verdict(found(broker(1), broker(2), broker(3), config=config))
