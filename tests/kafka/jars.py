"""Fetch Apache Kafka by its Maven coordinates, once a version, into ``.cache/kafka/VERSION``."""

import contextlib
import fcntl
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

__all__ = ["CACHE", "CLUSTER_ID", "class_path", "formatted_storage", "locked"]

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "kafka"
"""Ignored by git; ``make clean`` removes it. Maven's own repository makes the next fetch quick."""

CLUSTER_ID = "c2lkZWZldGNoLXRlc3RzIQ"
"""Of every cluster that the tests start: 16 bytes in base64, as Kafka wants it."""

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>sidefetch</groupId><artifactId>tests-kafka</artifactId><version>{version}</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
    <!-- Without a binding the brokers' logs go nowhere. -->
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only process that fills *folder*, which is made; others wait and then find it filled."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def class_path(version: str) -> str:
    """Return a Java class path with the whole of Kafka *version*, fetching it when it is not there.

    Cost: some 45 MB from Maven Central the first time, a lock and two reads after that.
    """
    home = CACHE / version
    pom = _POM.format(version=version)
    with locked(home):
        fetched = home / "lib" / "pom.xml"
        if not (fetched.is_file() and fetched.read_text() == pom):
            _fetch(home, pom)
    return f"{home / 'lib'}/*"


def _fetch(home: Path, pom: str) -> None:
    """Fill ``home/lib``; the pom goes in last, so that a torn fetch is not taken for a whole one."""
    for stale in (home / "lib", home / "format"):
        shutil.rmtree(stale, ignore_errors=True)
    (home / "pom.xml").write_text(pom)
    options = ["--batch-mode", "--quiet", f"--file={home / 'pom.xml'}", f"-DoutputDirectory={home / 'lib'}"]
    _run(["mvn", *options, "-Dstyle.color=never", _COPY], timeout_s=600)
    (home / "lib" / "pom.xml").write_text(pom)


def formatted_storage(version: str) -> Path:
    """Return a folder with the ``bootstrap.checkpoint`` that ``kafka-storage format`` writes for *version*.

    It names the features that a new cluster starts with and no node, so one serves every broker, and no broker
    costs a JVM for its formatting.
    """
    classes = class_path(version)
    folder = CACHE / version / "format"
    with locked(CACHE / version):
        if not (folder / "bootstrap.checkpoint").is_file():
            folder.mkdir(exist_ok=True)
            properties = folder / "server.properties"
            properties.write_text(
                "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:9\n"
                "listeners=PLAINTEXT://127.0.0.1:8,CONTROLLER://127.0.0.1:9\n"
                f"controller.listener.names=CONTROLLER\nlog.dirs={folder}\n"
            )
            tool = ["java", "-cp", classes, "kafka.tools.StorageTool", "format"]
            _run(
                [*tool, "--cluster-id", CLUSTER_ID, "--config", str(properties), "--ignore-formatted"],
                timeout_s=120,
            )
    return folder


def _run(command: list[str], *, timeout_s: float) -> None:
    """Run *command* to its end; what it said is in the error if it fails and nowhere otherwise."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
