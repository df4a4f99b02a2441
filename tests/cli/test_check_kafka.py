"""check against real brokers, as its users run it."""

import os
import subprocess
import sys

import pytest

from tests.kafka.cluster import KafkaCluster

pytestmark = pytest.mark.kafka


def check(bootstrap_servers: str, *options: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    environ |= {name: value for name, value in os.environ.items() if not name.startswith("SIDEFETCH_")}
    command = [sys.executable, "-m", "proxy", "check", "--bootstrap-servers", bootstrap_servers, *options]
    return subprocess.run(command, capture_output=True, text=True, env=environ, check=False, timeout=60)


def findings(done: "subprocess.CompletedProcess[str]", level: str) -> list[str]:
    lines = done.stdout.partition("Findings\n")[2].splitlines()
    return [line.split(maxsplit=1)[1] for line in lines if line.startswith(f"  {level} ")]


@pytest.mark.parametrize(("fixture", "release"), [("kafka4", "Kafka 4.1 to 4.3"), ("kafka39", "Kafka 3.9")])
def test_a_healthy_cluster_can_be_served(fixture: str, release: str, request: pytest.FixtureRequest) -> None:
    cluster: KafkaCluster = request.getfixturevalue(fixture)

    done = check(f"127.0.0.1:1,{cluster.bootstrap}")

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    for broker in cluster.brokers.values():
        (line,) = (line for line in lines if line.startswith(f"  node {broker.node_id} "))
        assert broker.address in line
        assert f"rack {broker.rack}" in line
        assert line.endswith(f"looks like {release}")
    assert any("incremental sessions by topic id with nodes 1, 2, 3" in line for line in lines)
    assert lines[-1] == "Sidefetch can serve this cluster."


def test_unreachable_bootstrap_servers_are_listed_with_reasons() -> None:
    done = check("127.0.0.1:1,127.0.0.1:2")

    assert done.returncode == 1
    first, second = done.stdout.partition("No bootstrap server answers\n")[2].splitlines()
    assert first.startswith("  127.0.0.1:1: ")
    assert second.startswith("  127.0.0.1:2: ")
    assert "refused" in first


def test_rack_is_detected_and_its_effect_is_reported(kafka4: KafkaCluster) -> None:
    done = check(kafka4.bootstrap, TOPOLOGY_ZONE="b")

    assert done.returncode == 0
    assert "Sidefetch is in rack b (source: env:TOPOLOGY_ZONE)" in findings(done, "note")
    assert (
        "reads of partitions led by nodes 1, 2, 3 go to an in-sync replica in rack b if there is one"
        " (replica.selector.class org.apache.kafka.common.replica.RackAwareReplicaSelector)" in findings(done, "ok")
    )


def test_a_rack_that_no_broker_has_is_warned_of(kafka4: KafkaCluster) -> None:
    done = check(kafka4.bootstrap, "--rack", "eu-1a")

    assert done.returncode == 0
    (warned,) = [line for line in findings(done, "warning") if "loopback" not in line and "among" not in line]
    assert warned.startswith("NO BROKER IS IN RACK eu-1a, the rack of Sidefetch: their racks are a, b, c.")


def test_brokers_without_replica_selector_are_reported_with_remedy() -> None:
    with KafkaCluster("4.3.1", settings={"replica.selector.class": None}) as cluster:
        theirs = check(cluster.bootstrap, "--rack", "b")
        ours = check(cluster.bootstrap, "--rack", "b", "--replica-selector", "rack-aware")

    (warned,) = [line for line in findings(theirs, "warning") if "replica.selector.class" in line]
    assert warned.startswith("no closest replica is chosen by nodes 1, 2, 3 (no replica.selector.class)")
    assert "Remedy: --replica-selector rack-aware" in warned
    assert not [line for line in findings(ours, "warning") if "replica" in line]
    assert (
        "reads go to an in-sync replica in rack b if there is one, even if the brokers prefer another"
        " replica (--replica-selector rack-aware)" in findings(ours, "ok")
    )
