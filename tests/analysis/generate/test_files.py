"""Generated rows in files as sidecars name them."""

import json
from pathlib import Path

from proxy.analysis.generate.cluster import cluster_of
from proxy.analysis.generate.files import write_files
from proxy.analysis.generate.mix import FleetMix
from proxy.analysis.generate.sidecar import sidecar_rows
from proxy.telemetry.ledger import problems


def test_files_follow_each_other_and_hold_all_rows(tmp_path: Path) -> None:
    rows = list(sidecar_rows(FleetMix(losses=1e-2, duplicates=1e-2), 1, 0, 3))

    assert write_files(tmp_path, iter(rows)) == len(rows)

    files = sorted(tmp_path.iterdir())
    assert len(files) == 3
    following = 0
    for path in files:
        proxy_id, first, last = path.name.removesuffix(".jsonl").rsplit("-", 2)
        assert (proxy_id, int(first)) == (rows[0]["proxy_id"], following)
        following = int(last)
    assert following == rows[-1]["seq"] + 1
    assert [json.loads(line) for path in files for line in path.read_text().splitlines()] == rows


def test_a_topology_has_leaders_and_racks(tmp_path: Path) -> None:
    cluster = cluster_of(FleetMix(brokers=6), 1, 0)

    count = write_files(tmp_path, cluster.topology_rows(7))

    (path,) = tmp_path.iterdir()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert count == len(rows) == sum(len(topic.partitions) for topic in cluster.topics)
    assert not [problem for row in rows for problem in problems(row)]
    assert {replica["rack"] for row in rows for replica in row["replicas"]} == {"a", "b", "c"}
    assert all(row["leader"] == row["replicas"][0]["node"] for row in rows)
