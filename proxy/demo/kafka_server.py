"""How Apache Kafka is fetched, by Maven, and a broker of it is started: for the demo and the tests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

__all__ = ["QUICK_JVM", "broker_command", "fetch_command", "pom", "server_properties"]

QUICK_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
"""Flags that halve the time until a JVM serves; C2 and G1 make it twice as fast later."""
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def pom(name: str, version: str, dependencies: Sequence[str]) -> str:
    """Return a Maven project with *dependencies*, each of the form ``group:artifact:version``."""
    lines = [
        '<project xmlns="http://maven.apache.org/POM/4.0.0">',
        "  <modelVersion>4.0.0</modelVersion>",
        f"  <groupId>sidefetch</groupId><artifactId>{name}</artifactId><version>{version}</version>",
        "  <dependencies>",
    ]
    for dependency in dependencies:
        group, artifact, of = dependency.split(":")
        named = f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{of}</version>"
        lines.append(f"    <dependency>{named}</dependency>")
    return "\n".join([*lines, "  </dependencies>", "</project>", ""])


def fetch_command(project: Path, jars: Path) -> list[str]:
    """Return the command that copies the dependencies of the POM *project* into the folder *jars*."""
    options = ["--batch-mode", "--quiet", "-Dstyle.color=never", f"--file={project}", f"-DoutputDirectory={jars}"]
    return ["mvn", *options, _COPY]


def server_properties(
    node_id: int,
    rack: str | None,
    data: Path,
    controllers: Mapping[int, str],
    listeners: Mapping[str, str],
    advertised: Mapping[str, str],
) -> dict[str, object]:
    """Return the properties of a broker that is a controller, too, with listeners in plaintext.

    It follows KIP-392, and its threads and buffers are few and small.

    Args:
        data:        the folder of its logs.
        controllers: the address, ``host:port``, of each node's controller.
        listeners:   the addresses by listener; INTERNAL must be among them.
        advertised:  those that clients and other brokers get.
    """
    served = {**listeners, "CONTROLLER": controllers[node_id]}
    return {
        "process.roles": "broker,controller",
        "node.id": node_id,
        "broker.rack": rack,
        "controller.quorum.voters": ",".join(f"{node}@{address}" for node, address in controllers.items()),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in served),
        "listeners": ",".join(f"{name}://{address}" for name, address in served.items()),
        "advertised.listeners": ",".join(f"{name}://{address}" for name, address in advertised.items()),
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "num.network.threads": 2,
        "num.io.threads": 4,
        "log.cleaner.dedupe.buffer.size": 2_097_152,
        "log.dirs": data,
    }


def broker_command(
    class_path: str, folder: Path, properties: Mapping[str, object], options: Sequence[str]
) -> list[str]:
    """Write *properties*, but those that are None, to *folder*; return the command of a broker that has them.

    *options* are those of the JVM.
    """
    file = folder / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items() if value is not None))
    return ["java", *options, "-cp", class_path, "kafka.Kafka", str(file)]
