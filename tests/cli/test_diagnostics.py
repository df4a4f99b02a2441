"""The conclusions of ``check`` from its observations."""

from collections.abc import Mapping
from typing import Literal

import attrs
import pytest

from proxy.cli.cluster_info import BrokerInfo, ClusterInfo, Diagnostic
from proxy.cli.diagnostics import can_serve, diagnose, kafka_release
from proxy.config import Address, Config, DownstreamConfig, PortRange, RoutingConfig, UpstreamConfig
from proxy.config.rack import RackFound, RackMiss

KAFKA = Address("kafka", 9092)
CONFIG = Config(UpstreamConfig(bootstrap_servers=(KAFKA,)))
V43: Mapping[int, tuple[int, int]] = {1: (4, 18), 18: (0, 4)}
V28: Mapping[int, tuple[int, int]] = {1: (0, 12), 18: (0, 3)}


RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
IN_A = RackFound("a", "--rack")


def broker(
    node: int,
    versions: Mapping[int, tuple[int, int]] = V43,
    rack: str | None = "a",
    selector_class: str | None = RACK_AWARE,
) -> BrokerInfo:
    return BrokerInfo(node, Address(f"kafka-{node}", 9092), rack, versions, selector_class=selector_class)


def found(
    *brokers: BrokerInfo, config: Config = CONFIG, through: Address = KAFKA, rack: RackFound = IN_A
) -> list[Diagnostic]:
    return diagnose(ClusterInfo("id", through, brokers), config, rack, compiled=True)


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


def test_three_new_brokers_in_three_racks_cause_no_warnings() -> None:
    findings = found(broker(2, rack="b"), broker(1, rack="a"), broker(3, rack="c"))

    assert findings == [
        Diagnostic("ok", "incremental sessions by topic id with nodes 1, 2, 3 (Fetch v13 or newer)"),
        Diagnostic(
            "ok",
            "a moved leader is named, with its address, in the responses of nodes 1, 2, 3 (Fetch v16 or newer)",
        ),
        Diagnostic(
            "ok",
            "clients of Kafka 0.8 and newer are served: requests in versions that nodes 1, 2, 3 no longer support,"
            " such as Fetch below v4, are upgraded, and records are converted",
        ),
        Diagnostic(
            "ok",
            "reads of partitions led by nodes 1, 2, 3 go to an in-sync replica in rack a if there is one"
            f" (replica.selector.class {RACK_AWARE})",
        ),
        Diagnostic("note", "Sidefetch is in rack a (source: --rack)"),
        Diagnostic("note", "the brokers' racks: a, b, c"),
    ]
    assert can_serve(findings)


def test_missing_c_compiler_is_noted() -> None:
    findings = diagnose(ClusterInfo("id", KAFKA, (broker(1),)), CONFIG, IN_A, compiled=False)

    (slow,) = [finding for finding in findings if "C compiler" in finding.text]
    assert slow.level == "note"
    assert can_serve(findings)


def test_older_brokers_have_sessions_by_name() -> None:
    findings = found(broker(1, V28))

    assert any(f.level == "note" and "by topic name with node 1 (" in f.text for f in findings)
    assert not any(f.level == "ok" and "sessions" in f.text for f in findings)
    assert can_serve(findings)


@pytest.mark.parametrize(
    ("highest", "level", "expected"),
    [
        (13, "ok", "by topic id"),
        (12, "note", "by topic name"),
        (7, "note", "by topic name"),
        (6, "warning", "no incremental sessions"),
        (4, "warning", "no incremental sessions"),
        (3, "failure", "cannot be read"),
    ],
)
def test_fetch_session_support_depends_on_fetch_version(highest: int, level: str, expected: str) -> None:
    findings = found(broker(1, {1: (0, highest), 18: (0, 3)}))

    assert any(finding.level == level and expected in finding.text for finding in findings)
    assert can_serve(findings) is (level != "failure")


def test_brokers_of_several_releases_are_listed_by_release() -> None:
    findings = found(broker(1), broker(2, V28), broker(3))

    (note,) = [finding.text for finding in findings if "several releases" in finding.text]
    assert "node 2 Kafka 2.7 to 3.0; nodes 1, 3 Kafka 4.1 to 4.3" in note


def test_missing_racks_are_warned_of() -> None:
    none = found(broker(1, rack=None), broker(2, rack=None), rack=RackFound(None, ""))
    some = found(broker(1, rack="a"), broker(2, rack=None))

    assert [f.text for f in none if f.level == "warning"] == [
        "no broker has a rack (broker.rack), so no replica is known to be the closest"
    ]
    assert [f.text for f in some if f.level == "warning"] == [
        "node 2 without a rack (broker.rack); the other brokers are in a"
    ]


def test_a_broker_that_was_not_reached_is_a_failure() -> None:
    lost = attrs.evolve(broker(2, {}), problem="connection refused")

    findings = found(broker(1), lost)

    assert findings[-1] == Diagnostic("failure", "node 2 at kafka-2:9092 was not reached: connection refused")
    assert not can_serve(findings)


def test_a_cluster_without_brokers_is_a_failure() -> None:
    assert not can_serve(found())


def test_brokers_on_loopback_of_another_machine_are_warned_of() -> None:
    here = attrs.evolve(broker(1), address=Address("localhost", 19092))

    assert any("advertised on loopback" in finding.text for finding in found(here))
    assert not any("loopback" in f.text for f in found(here, through=Address("127.0.0.1", 19092)))


def test_a_broker_on_one_of_the_broker_ports_is_warned_of() -> None:
    here = attrs.evolve(broker(1), address=Address("127.0.0.1", 9094))

    assert any("among broker-ports (9093-9192)" in f.text for f in found(here, through=Address("127.0.0.1", 9094)))


def test_more_brokers_than_ports_is_a_failure() -> None:
    config = attrs.evolve(CONFIG, downstream=DownstreamConfig(broker_ports=PortRange(9093, 9094)))

    assert can_serve(found(broker(1), broker(2), config=config))
    assert not can_serve(found(broker(1), broker(2), broker(3), config=config))


def test_a_broker_that_has_no_port_of_its_id_is_a_failure_where_ports_are_shared() -> None:
    alone = attrs.evolve(CONFIG, downstream=DownstreamConfig(broker_ports=PortRange(9093, 9094)))
    sharing = attrs.evolve(alone, downstream=attrs.evolve(alone.downstream, share_ports=True))

    assert can_serve(found(broker(0), broker(7), config=alone))
    (failure,) = texts(found(broker(0), broker(7), config=sharing), "failure")
    assert failure.startswith("broker-ports: broker 7 finds no port in 9093-9094: with share-ports it is 9100")


def texts(findings: list[Diagnostic], *levels: str) -> list[str]:
    return [finding.text for finding in findings if finding.level in levels]


def selecting(selector: Literal["broker", "rack-aware", "leader"]) -> Config:
    return attrs.evolve(CONFIG, routing=RoutingConfig(replica_selector=selector))


@pytest.mark.parametrize(
    ("racks", "expected"), [(("a", "c"), "their racks are a, c"), ((None, None), "they have no racks")]
)
@pytest.mark.parametrize("selector", ["broker", "rack-aware", "leader"])
def test_a_rack_that_no_broker_has_is_warned_of_loudly(
    racks: tuple[str | None, ...], expected: str, selector: Literal["broker", "rack-aware", "leader"]
) -> None:
    brokers = [broker(node, rack=rack) for node, rack in enumerate(racks)]

    findings = found(*brokers, rack=RackFound("b", "env:ZONE"), config=selecting(selector))

    (loud,) = [text for text in texts(findings, "warning") if text.startswith("NO BROKER IS IN RACK b")]
    assert expected in loud
    assert "Remedy: correct --rack or broker.rack" in loud
    assert not any("in-sync replica" in finding.text for finding in findings)
    assert "Sidefetch is in rack b (source: env:ZONE)" in texts(findings, "note")
    assert can_serve(findings)


def test_unknown_rack_is_reported_with_tried_sources_and_remedy() -> None:
    lost = RackFound(None, "", (RackMiss("env:ZONE", "not set"), RackMiss("file:/z", "it is empty", "fill it")))

    findings = found(broker(1), rack=lost)

    assert texts(findings, "warning") == [
        "no rack from file:/z: it is empty. Remedy: fill it",
        "the rack of Sidefetch is not known, but brokers are in a: reads go to the leaders. Remedy: set --rack, or"
        " a source of --rack-from (tried: env:ZONE: not set; file:/z: it is empty)",
    ]


def test_failed_rack_source_is_only_noted_if_another_source_succeeds() -> None:
    findings = found(broker(1), rack=RackFound("a", "env:Z", (RackMiss("file:/z", "it is empty", "fill it"),)))

    assert texts(findings, "warning") == []
    assert "no rack from file:/z: it is empty. Remedy: fill it" in texts(findings, "note")


@pytest.mark.parametrize("how", ["not looked for (--rack-from none)", "not looked for: leaders are read"])
def test_a_rack_that_was_not_looked_for_is_no_warning(how: str) -> None:
    findings = found(broker(1), rack=RackFound(None, how))

    assert texts(findings, "warning") == []
    assert f"the rack of Sidefetch was {how}" in texts(findings, "note")


def test_missing_replica_selector_is_reported_with_remedy() -> None:
    findings = found(broker(1), broker(2, selector_class=""), broker(3, selector_class=""))

    (expected,) = texts(findings, "warning")
    assert expected.startswith("no closest replica is chosen by nodes 2, 3 (no replica.selector.class)")
    assert "Remedy: --replica-selector rack-aware" in expected


def test_unknown_replica_selector_is_noted() -> None:
    (expected,) = [f for f in found(broker(1, selector_class=None)) if "unknown" in f.text]

    assert expected.level == "note"
    assert "Remedy: --replica-selector rack-aware" in expected.text


def test_another_selector_class_is_named_and_nothing_promised_of_it() -> None:
    assert (
        "reads of partitions led by node 1 go to the replicas that it selects"
        " (replica.selector.class com.example.Mine)"
        in texts(found(broker(1, selector_class="com.example.Mine")), "ok")
    )


@pytest.mark.parametrize("selector_class", [RACK_AWARE, "", None])
def test_our_own_selector_and_leaders_need_nothing_of_the_brokers(selector_class: str | None) -> None:
    ours = found(broker(1, selector_class=selector_class), config=selecting("rack-aware"))
    leaders = found(broker(1, selector_class=selector_class), config=selecting("leader"))

    assert any("reads go to an in-sync replica in rack a if there is one" in text for text in texts(ours, "ok"))
    assert "reads go to the leaders (--replica-selector leader)" in texts(leaders, "note")
    assert not any("selector.class" in finding.text for finding in ours + leaders)


def test_brokers_without_follower_fetching_are_reported() -> None:
    findings = found(broker(1), broker(2, {1: (0, 10), 18: (0, 2)}), config=selecting("rack-aware"))

    assert "only leaders are read on node 2 (below Fetch v11, which Kafka 2.3 introduced)" in texts(
        findings, "warning"
    )
