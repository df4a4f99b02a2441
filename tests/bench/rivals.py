"""Other proxies in front of the same brokers: HAProxy, which forwards TCP, and Kroxylicious, which decodes Kafka.

Each runs one thread, as Sidefetch does, and rewrites addresses only. A relay of a hundred lines of C, which
forwards
whole frames, shows the most that a proxy can reach that writes each response anew.
"""

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from tests.bench.c_programs import c_program
from tests.bench.reader import Connection
from tests.bench.stage import NODE, address_of
from tests.kafka.cluster import KafkaCluster
from tests.kafka.jars import class_path
from tests.ports import free_port_range
from tests.processes import Process

__all__ = ["KROXYLICIOUS", "Rival", "haproxy_path", "rivals"]

KROXYLICIOUS: Final = "0.12.0"
"""A version of May 2025: the newest whose runtime was complete in Maven Central."""
_START_S: Final = 30


@attrs.frozen
class Rival:
    """A proxy that runs."""

    name: str
    address: str
    """The address of ``NODE`` behind the proxy."""
    pid: int


def haproxy_path() -> str | None:
    """Debian keeps it where an ordinary user's PATH does not lead."""
    return shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")


@contextlib.contextmanager
def rivals(cluster: KafkaCluster) -> Iterator[list[Rival]]:
    """All that are to be had before *cluster*: the relay, HAProxy where it is installed, Kroxylicious."""
    server = cluster.brokers[NODE].address
    with contextlib.ExitStack() as stage:
        relay, port = stage.enter_context(c_program("relay", server.rpartition(":")[2]))
        found = [Rival("frames in C", f"127.0.0.1:{port}", relay.pid)]
        if path := haproxy_path():
            found.append(stage.enter_context(_haproxy(path, server)))
        yield [*found, stage.enter_context(_kroxylicious(cluster))]


@contextlib.contextmanager
def _haproxy(path: str, server: str) -> Iterator[Rival]:
    """In TCP mode."""
    address = f"127.0.0.1:{free_port_range(1)}"
    config = (
        "global\n  nbthread 1\n"
        "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 1m\n  timeout server 1m\n"
        f"listen broker\n  bind {address}\n  server broker {server}\n"
    )
    with _running("haproxy", [path, "-db", "-f"], config, address) as process:
        yield Rival("HAProxy", address, process.pid)


@contextlib.contextmanager
def _kroxylicious(cluster: KafkaCluster) -> Iterator[Rival]:
    """Without filters. It has as many threads for clients as it sees processors."""
    port = free_port_range(1 + len(cluster.brokers))
    bootstrap = f"127.0.0.1:{port}"
    config = (
        "virtualClusters:\n"
        "  - name: bench\n"
        f"    targetCluster: {{bootstrapServers: '{cluster.bootstrap}'}}\n"
        "    gateways:\n"
        "      - name: default\n"
        "        portIdentifiesNode:\n"
        f"          bootstrapAddress: {bootstrap}\n"
        f"          nodeStartPort: {port + 1}\n"
        f"          nodeIdRanges: [{{name: brokers, start: {min(cluster.brokers)}, end: {max(cluster.brokers)}}}]\n"
    )
    jvm = ["java", "-XX:ActiveProcessorCount=1", "-XX:+UseG1GC", "-Xmx1g"]
    program = str(Path(__file__).with_name("Kroxylicious.java"))
    command = [*jvm, "-cp", class_path(KROXYLICIOUS, "kroxylicious"), program]
    with _running("kroxylicious", command, config, bootstrap) as process:
        yield Rival("Kroxylicious", address_of(NODE, bootstrap), process.pid)


@contextlib.contextmanager
def _running(name: str, command: list[str], config: str, address: str) -> Iterator[Process]:
    """A process that takes the path of its *config* as its last argument, once it listens at *address*."""
    with tempfile.TemporaryDirectory(prefix=f"sidefetch-{name}-") as folder:
        path = Path(folder) / f"{name}.conf"
        path.write_text(config, encoding="utf-8")
        with Process([*command, str(path)], log=Path(folder) / f"{name}.log") as process:
            _wait_until_open(address, process)
            yield process


def _wait_until_open(address: str, process: Process) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            with Connection(address):
                return
        except OSError:
            assert process.exit_code is None, process.log_text()
            assert time.monotonic() < deadline, f"{process.name} does not listen:\n{process.log_text()}"
            time.sleep(0.05)
