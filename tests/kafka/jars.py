"""Fetch Apache Kafka by its Maven coordinates, once a version; a second time Maven has them at hand."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from proxy.demo.kafka_server import fetch_command, pom
from tests.kept import CACHE, locked, run

__all__ = ["CLUSTER_ID", "What", "class_path", "formatted_storage", "home"]

What = Literal["kafka", "kafka-clients", "kroxylicious"]
"""Brokers, tools and the client of their version; or the client alone, with a reader of JSON for our programs; or
another proxy, which the benchmarks compare with."""

CLUSTER_ID = "c2lkZWZldGNoLXRlc3RzIQ"
"""The id of every cluster that the tests start: 16 bytes in base64."""

_SLF4J = "org.slf4j:slf4j-simple:1.7.36"
"""Without a binding, brokers log nothing."""
_DEPENDENCIES: Mapping[What, Sequence[str]] = {
    "kafka": ("org.apache.kafka:kafka_2.13:{}", _SLF4J),
    "kafka-clients": (
        "org.apache.kafka:kafka-clients:{}",
        _SLF4J,
        "com.fasterxml.jackson.core:jackson-databind:2.21.2",
    ),
    "kroxylicious": ("io.kroxylicious:kroxylicious-runtime:{}",),
}


def home(version: str, what: What = "kafka") -> Path:
    """Return the folder for all that is kept of a version."""
    return CACHE / what / version


def class_path(version: str, what: What = "kafka") -> str:
    """Return a Java class path with *what* in *version*, and fetch it if it is missing.

    Cost: some 45 MB from Maven Central the first time (6 MB for a client), a lock and two reads after that.
    """
    folder = home(version, what)
    project = pom(f"tests-{what}", version, [each.format(version) for each in _DEPENDENCIES[what]])
    with locked(folder):
        fetched = folder / "lib" / "pom.xml"
        if not (fetched.is_file() and fetched.read_text() == project):
            _fetch(folder, project)
    return f"{folder / 'lib'}/*"


def _fetch(folder: Path, project: str) -> None:
    """Fill ``folder/lib``; the POM *project* goes in last, so that a torn fetch is not taken for a whole one."""
    for stale in (folder / "lib", folder / "format"):
        shutil.rmtree(stale, ignore_errors=True)
    (folder / "pom.xml").write_text(project)
    run(fetch_command(folder / "pom.xml", folder / "lib"), timeout_s=600)
    (folder / "lib" / "pom.xml").write_text(project)


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
