"""topology, as its users run it, against an embedded cluster."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import trio

from proxy.demo.cluster import EmbeddedCluster, embedded_cluster
from proxy.telemetry.ledger import Row, problems


def topology(bootstrap_servers: str, *options: str) -> "subprocess.CompletedProcess[str]":
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SIDEFETCH_")}
    command = [sys.executable, "-m", "proxy", "topology", "--bootstrap-servers", bootstrap_servers, *options]
    return subprocess.run(command, capture_output=True, text=True, env=environ, check=False, timeout=30)


async def asked(cluster: EmbeddedCluster, *options: str) -> "subprocess.CompletedProcess[str]":
    return await trio.to_thread.run_sync(partial(topology, cluster.bootstrap, *options))


def rows(text: str) -> list[Row]:
    reported = [json.loads(line) for line in text.splitlines()]
    assert not [problem for row in reported for problem in problems(row)]
    assert [row["seq"] for row in reported] == list(range(len(reported)))
    return reported


async def test_each_partition_is_listed_with_replicas_and_their_racks() -> None:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", assignment=[[1, 2], [2, 3]])
        cluster.stop(3)
        done = await asked(cluster)

    assert (done.returncode, done.stderr) == (0, "")
    one, two = rows(done.stdout)
    assert (one["topic"], one["partition"], one["leader"]) == ("t", 0, 1)
    assert one["replicas"] == [{"node": 1, "rack": "a", "in_sync": 1}, {"node": 2, "rack": "b", "in_sync": 1}]
    assert two["replicas"][1] == {"node": 3, "rack": None, "in_sync": 0}
    assert one["cluster_id"] == two["cluster_id"] is not None


async def test_output_file_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 3)
        done = await asked(cluster, "--out", str(tmp_path / "topology.jsonl"))
        refused = await asked(cluster, "--out", str(tmp_path / "nowhere" / "topology.jsonl"))

    assert (done.returncode, done.stdout) == (0, f"3 partitions of 1 topics in {tmp_path / 'topology.jsonl'}\n")
    assert len(rows((tmp_path / "topology.jsonl").read_text())) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["topology.jsonl"]
    assert refused.returncode == 2
    assert "out: " in refused.stderr


def test_unreachable_bootstrap_servers_are_listed_with_reasons() -> None:
    done = topology("127.0.0.1:1,127.0.0.1:2")

    assert (done.returncode, done.stdout) == (1, "")
    assert [line.strip().partition(": ")[0] for line in done.stderr.splitlines()[1:]] == [
        "127.0.0.1:1",
        "127.0.0.1:2",
    ]


def test_topology_is_refused_if_upstream_sasl_is_client() -> None:
    done = topology("127.0.0.1:1", "--upstream-sasl", "client")

    assert done.returncode == 2
    assert done.stderr.startswith("sidefetch: upstream-sasl: client")
