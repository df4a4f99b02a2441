"""Fetch Apache Kafka by its Maven coordinates, once a version; a second time Maven has them at hand."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from tests.kept import CACHE, locked, run

__all__ = ["CLUSTER_ID", "What", "class_path", "formatted_storage", "home"]

What = Literal["kafka", "kafka-clients", "kroxylicious"]
"""Brokers, tools and the client of their version; or the client alone, with a reader of JSON for our programs; or
another proxy, which the benchmarks compare with."""

CLUSTER_ID = "c2lkZWZldGNoLXRlc3RzIQ"
"""The id of every cluster that the tests start: 16 bytes in base64."""

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_POMS: Mapping[What, str] = {
    "kafka": """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>sidefetch</groupId><artifactId>tests-kafka</artifactId><version>{version}</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version></dependency>
    <!-- Without a binding the brokers' logs go nowhere. -->
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
""",
    "kafka-clients": """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>sidefetch</groupId><artifactId>tests-kafka-clients</artifactId><version>{version}</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId><version>{version}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
    <dependency><groupId>com.fasterxml.jackson.core</groupId><artifactId>jackson-databind</artifactId><version>2.21.2</version></dependency>
  </dependencies>
</project>
""",
    "kroxylicious": """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>sidefetch</groupId><artifactId>tests-kroxylicious</artifactId><version>{version}</version>
  <dependencies>
    <dependency><groupId>io.kroxylicious</groupId><artifactId>kroxylicious-runtime</artifactId><version>{version}</version></dependency>
  </dependencies>
</project>
""",
}


def home(version: str, what: What = "kafka") -> Path:
    """Return the folder for all that is kept of a version."""
    return CACHE / what / version


def class_path(version: str, what: What = "kafka") -> str:
    """Return a Java class path with *what* in *version*, and fetch it if it is missing.

    Cost: some 45 MB from Maven Central the first time (6 MB for a client), a lock and two reads after that.
    """
    folder = home(version, what)
    pom = _POMS[what].format(version=version)
    with locked(folder):
        fetched = folder / "lib" / "pom.xml"
        if not (fetched.is_file() and fetched.read_text() == pom):
            _fetch(folder, pom)
    return f"{folder / 'lib'}/*"


def _fetch(folder: Path, pom: str) -> None:
    """Fill ``folder/lib``; the pom goes in last, so that a torn fetch is not taken for a whole one."""
    for stale in (folder / "lib", folder / "format"):
        shutil.rmtree(stale, ignore_errors=True)
    (folder / "pom.xml").write_text(pom)
    options = ["--batch-mode", "--quiet", f"--file={folder / 'pom.xml'}", f"-DoutputDirectory={folder / 'lib'}"]
    run(["mvn", *options, "-Dstyle.color=never", _COPY], timeout_s=600)
    (folder / "lib" / "pom.xml").write_text(pom)


def formatted_storage(version: str) -> Path:
    """Return a folder with the output of ``kafka-storage format`` for *version*, and its properties.

    It names the features of a new cluster and no node, so one serves every broker, and no broker needs a JVM for
    its
    formatting.
    """
    classes = class_path(version)
    folder = home(version) / "format"
    with locked(home(version)):
        if not (folder / "meta.properties").is_file():
            folder.mkdir(exist_ok=True)
            properties = folder / "server.properties"
            properties.write_text(
                "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:9\n"
                "listeners=PLAINTEXT://127.0.0.1:8,CONTROLLER://127.0.0.1:9\n"
                f"controller.listener.names=CONTROLLER\nlog.dirs={folder}\n"
            )
            tool = ["java", "-cp", classes, "kafka.tools.StorageTool", "format"]
            run(
                [*tool, "--cluster-id", CLUSTER_ID, "--config", str(properties), "--ignore-formatted"],
                timeout_s=120,
            )
    return folder
