import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pyspark
import pytest
from pyspark.sql import SparkSession

from proxy.analysis import ingest, jobs
from proxy.version import VERSION
from tests.analysis.rows import row
from tests.kafka.admin import eventually
from tests.ports import free_ports
from tests.prerequisites import require
from tests.processes import Process

_DEPLOY: Final = Path(__file__).resolve().parents[2] / "deploy" / "spark"
_SPARK: Final = Path(pyspark.__file__).parent
_ENV: Final = {
    "SPARK_HOME": str(_SPARK),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
    "SPARK_DAEMON_MEMORY": "256m",
}


def _ledgers(folder: Path, files: int, rows: int) -> int:
    """Rows of fetches, some of which come twice, and a bad one a file; how many fetches there are."""
    folder.mkdir()
    for number in range(files):
        seqs = range(number * rows, (number + 1) * rows + 1)
        lines = [json.dumps(row("fetch", seq=seq, at_us=seq)) for seq in seqs]
        (folder / f"p-{number}.jsonl").write_text("\n".join([*lines, f"torn {number}"]) + "\n")
    return files * rows + 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["ingest", "{here}/nowhere", "--out", "{here}/out"], "nowhere: no such file or folder"),
        (["ingest", "{here}", "--out", "{here}"], "already exists; accepted: a new folder, or --mode append"),
        (["ingest", "{here}", "--out", "{here}/stream", "--mode", "append"], "a stream, whose readers would not"),
        (["stream", "--topic", "t", "--out", "{here}/out"], "--kafka: no bootstrap.servers"),
        (["stream", "--topic", "t", "--out", "o", "--kafka", "secret"], "an entry has no '='; accepted: NAME=VAL"),
        (
            ["stream", "--topic", "t", "--out", "o", "--kafka-config", "{here}/no"],
            "--kafka-config: .*/no: No such file",
        ),
        (["stream", "--folder", "{here}", "--out", "{here}", "--once"], "not empty, and not the folder of a"),
        (["stream", "--out", "o"], "one of the arguments --folder --topic is required"),
        (["answers", "{here}", "--out", "o", "--only", "all"], "invalid choice: 'all'"),
    ],
)
def test_invalid_arguments_are_reported_and_exit_with_2(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    assert spark.version
    (tmp_path / "stream" / "_spark_metadata").mkdir(parents=True)

    with pytest.raises(SystemExit) as ended:
        jobs.main([each.format(here=tmp_path) for each in arguments])

    reported = capsys.readouterr().err
    assert ended.value.code == 2
    assert re.search(why, reported)
    assert "secret" not in reported


def test_only_requested_answer_is_written_in_requested_format(spark: SparkSession, tmp_path: Path) -> None:
    _ledgers(tmp_path / "in", 1, 3)
    out = tmp_path / "out"

    jobs.main(["answers", str(tmp_path / "in"), "--out", f"{out}/", "--only", "savings", "--format", "csv"])

    assert [path.name for path in out.iterdir()] == ["savings"]
    found = spark.read.option("header", True).csv(str(out / "savings"))
    assert "cluster_id" in found.columns
    assert found.count() > 0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A standalone master and two workers, all on this machine: the master's address."""
    require("java")
    port, *ui_ports = free_ports(4)
    master = f"spark://127.0.0.1:{port}"
    spark_class = [str(_SPARK / "bin" / "spark-class")]
    host = ["--host", "127.0.0.1", "--webui-port"]
    package = "org.apache.spark.deploy"
    with ExitStack() as running:
        command = [*spark_class, f"{package}.master.Master", *host, str(ui_ports[0]), "--port", str(port)]
        running.enter_context(Process(command, log=tmp_path / "master.log", env=_ENV))
        for number in (1, 2):
            command = [*spark_class, f"{package}.worker.Worker", *host, str(ui_ports[number]), "--cores", "1"]
            command += ["--memory", "1g", "--work-dir", str(tmp_path / f"work-{number}"), master]
            running.enter_context(Process(command, log=tmp_path / f"worker-{number}.log", env=_ENV))
        registered = (tmp_path / "master.log").read_text
        eventually(lambda: registered().count("Registering worker") == 2, "two workers", 120)
        yield master


@pytest.mark.long
def test_the_ingest_job_runs_on_a_cluster_of_two_workers(spark: SparkSession, cluster: str, tmp_path: Path) -> None:
    count = _ledgers(tmp_path / "in", 8, 1_000)
    out = tmp_path / "out"
    submit = [str(_SPARK / "bin" / "spark-submit"), "--master", cluster, "--executor-memory", "512m"]
    submit += ["--properties-file", str(_DEPLOY / "spark-defaults.conf"), "--conf", "spark.ui.enabled=false"]
    submit += ["--conf", "spark.sql.shuffle.partitions=4", "--conf", "spark.driver.host=127.0.0.1"]

    done = subprocess.run(
        [*submit, str(_DEPLOY / "job.py"), "ingest", str(tmp_path / "in"), "--out", str(out)],
        env={**os.environ, **_ENV},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4000:]
    found = ingest.read(spark, str(out))
    assert found.ledger.fetch.count() == spark.read.parquet(str(out)).where("record = 'fetch'").count() == count
    assert found.bad.count() == 8
    # Each worker has had a part.
    assert all(list(tmp_path.glob(f"work-{number}/*/*/stderr")) for number in (1, 2))


def test_the_manifests_are_of_one_image_and_submit_jobs_that_there_are() -> None:
    manifest = (_DEPLOY / "kubernetes.yaml").read_text()
    dockerfile = (_DEPLOY / "Dockerfile").read_text()

    kinds = re.findall(r"^kind: (\w+)$", manifest, re.MULTILINE)
    assert kinds == ["SparkApplication", "ScheduledSparkApplication"]
    assert set(re.findall(r"image: (.*)", manifest)) == {f"sidefetch-spark:{VERSION}"}
    assert set(re.findall(r"sparkVersion: (.*)", manifest)) == {pyspark.__version__}
    assert f"docker.io/apache/spark:{pyspark.__version__}\n" in dockerfile
    (script,) = set(re.findall(r"mainApplicationFile: local://(.*)", manifest))
    assert f"COPY deploy/spark/job.py {script}\n" in dockerfile
    settings = dict(
        re.findall(r"^(spark\.\S+)\s+(.*)$", (_DEPLOY / "spark-defaults.conf").read_text(), re.MULTILINE)
    )
    for block in re.findall(r"sparkConf:\n((?:\s+spark\..*\n)+)", manifest):
        assert dict(re.findall(r'(spark\.\S+): "?([^"\n]*)', block)) == settings
    for block in re.findall(r"arguments:\n((?:\s+- .*\n)+)", manifest):
        arguments = [each.strip('"') for each in re.findall(r"- (.*)", block)]
        assert jobs.parser().parse_args(arguments).out.startswith("s3a://")
