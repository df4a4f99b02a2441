"""Three brokers that are controllers too, on loopback, in racks a, b and c."""

import contextlib
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs
from kio.schema.metadata.v12 import MetadataRequest

from proxy.demo.kafka_server import QUICK_JVM, broker_command, server_properties
from tests.kafka.ask import ask
from tests.kafka.jars import CLUSTER_ID, class_path, formatted_storage
from tests.ports import free_ports
from tests.processes import Process
from tests.tap import Tap

__all__ = ["BrokerAddresses", "KafkaCluster"]

HOST = "127.0.0.1"

_FULL_JVM = ("-XX:+UseG1GC", "-Xms512m")

_LOGGING = (
    "defaultLogLevel=warn",
    "showDateTime=true",
    "dateTimeFormat=HH:mm:ss.SSS",
    # These two log every attempt to reach a broker that a test has killed.
    "log.org.apache.kafka.clients.NetworkClient=error",
    "log.kafka.server.ReplicaFetcherThread=error",
)

_SETTINGS: Mapping[str, object] = {
    "auto.create.topics.enable": "false",
    # Small, but a coordinator still fails over when its broker is killed.
    "default.replication.factor": 3,
    "min.insync.replicas": 1,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 1,
    # Known records bear timestamps of long ago, by which the broker would delete them.
    "log.retention.ms": -1,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    # A killed broker is noticed after four seconds instead of nine.
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 4_000,
    # Idle brokers write nothing: with up to eight clusters at once that took a tenth of the time of all tests.
    "metadata.max.idle.interval.ms": 0,
    "num.recovery.threads.per.data.dir": 1,
}


@attrs.frozen
class BrokerAddresses:
    """The addresses of one broker."""

    node_id: int
    host: str
    port: int
    """The port of the listener that advertises itself."""
    rack: str
    """The initial rack; see ``KafkaCluster.racks``."""
    tap_port: int
    """The port that the second listener advertises: that of ``KafkaCluster.tap``."""
    behind_tap_port: int
    """The real port of that listener."""
    internal_port: int
    controller_port: int
    jmx_port: int
    more_ports: Mapping[str, int] = attrs.field(factory=dict)
    """The ports of further listeners of a test, by name."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


class KafkaCluster:
    """Apache Kafka *version*, running while in context.

    Args:
        settings: server properties over those above, equal on all brokers; None leaves one of those above out.
        listeners: names of more listeners, which advertise themselves; *settings* define their protocols.
        of_broker: more of them by node id, for that broker alone.
        hosts:    addresses of this host other than loopback, by the names of the listeners that use them.
        heap_mib: of each broker; some 220 MiB are used with few partitions.
        quick:    JVM flags for a quick start; False for benchmarks.
    Raises: RuntimeError, with the brokers' logs, when they are not up in time.
    """

    def __init__(
        self,
        version: str,
        *,
        settings: Mapping[str, object] | None = None,
        listeners: Sequence[str] = (),
        of_broker: Mapping[int, Mapping[str, object]] | None = None,
        hosts: Mapping[str, str] | None = None,
        heap_mib: int = 320,
        quick: bool = True,
    ) -> None:
        self.version = version
        self._settings = {**_SETTINGS, **(settings or {})}
        self._of_broker = of_broker or {}
        self._hosts = hosts or {}
        host = self._hosts.get("PLAINTEXT", HOST)
        self._jvm = (*((*QUICK_JVM, "-Xms96m") if quick else _FULL_JVM), f"-Xmx{heap_mib}m")
        each = 6 + len(listeners)
        ports = free_ports(3 * each)
        self.brokers = {
            node_id: BrokerAddresses(node_id, host, ports[i], rack, *_more(ports[i + 1 : i + each], listeners))
            for i, node_id, rack in ((0, 1, "a"), (each, 2, "b"), (2 * each, 3, "c"))
        }
        self.racks: dict[int, str | None] = {node_id: broker.rack for node_id, broker in self.brokers.items()}
        """The racks by node id; a change applies from that broker's next start."""
        self._home: Path | None = None
        self._processes: dict[int, Process] = {}
        self._stalled: set[int] = set()

    @property
    def bootstrap(self) -> str:
        """Addresses of the brokers themselves."""
        return ",".join(broker.address for broker in self.brokers.values())

    def bootstrap_of(self, listener: str) -> str:
        """Addresses of one of the listeners that the test has asked for."""
        host = self._hosts.get(listener, HOST)
        return ",".join(f"{host}:{broker.more_ports[listener]}" for broker in self.brokers.values())

    @property
    def running(self) -> list[int]:
        """Node ids of the brokers that have not been killed or stopped, and do not stall."""
        return sorted(self._processes.keys() - self._stalled)

    def __enter__(self) -> Self:
        self._home = Path(tempfile.mkdtemp(prefix=f"sidefetch-kafka-{self.version}-"))
        try:
            for node_id in self.brokers:
                self._format(node_id)
                self._start(node_id)
            self.wait_for(set(self.brokers))
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.kill()
        self._processes.clear()
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)

    def kill(self, node_id: int) -> None:
        """End a broker as a crash would: connections break, nothing is handed over."""
        self._processes.pop(node_id).kill()

    def stop(self, node_id: int) -> None:
        """Shut a broker down in good order: its leaders move first."""
        process = self._processes.pop(node_id)
        try:
            process.send(signal.SIGTERM)
            process.wait(60)
        finally:
            process.kill()

    def restart(self, node_id: int) -> None:
        """Start a killed or stopped broker at its old address; return when Metadata lists it."""
        self._start(node_id)
        self.wait_for(set(self._processes))

    @contextlib.contextmanager
    def stalled(self, node_id: int) -> Iterator[None]:
        """Let a broker do nothing at all, while in context, its connections up; then wait until it serves again."""
        self._stalled.add(node_id)
        try:
            with self._processes[node_id].stopped():
                yield
        finally:
            self._stalled.remove(node_id)
        self.wait_for(set(self._processes))

    def pid(self, node_id: int) -> int:
        """The process id of a running broker."""
        return self._processes[node_id].pid

    def jmx_url(self, node_id: int) -> str:
        """Return the JMX address of a broker's metrics."""
        return f"service:jmx:rmi:///jndi/rmi://{HOST}:{self.brokers[node_id].jmx_port}/jmxrmi"

    @property
    def tapped(self) -> dict[int, tuple[str, int]]:
        """Return, by port that the second listeners advertise, the real address of the listener."""
        return {broker.tap_port: (broker.host, broker.behind_tap_port) for broker in self.brokers.values()}

    @contextlib.contextmanager
    def tap(self) -> Iterator[Tap]:
        """Stand between the brokers and all who come in by ``Tap.bootstrap``, and count; one at a time."""
        with Tap(self.tapped) as tap:
            yield tap

    def wait_for(self, node_ids: set[int], timeout_s: float = 60.0) -> None:
        """Return when every broker of *node_ids* says that exactly these serve clients."""
        deadline = time.monotonic() + timeout_s
        for node_id in sorted(node_ids):
            while not _sees(self.brokers[node_id].address, node_ids):
                codes = {node: process.exit_code for node, process in self._processes.items()}
                dead = {node: code for node, code in codes.items() if code is not None}
                if dead or time.monotonic() > deadline:
                    raise RuntimeError(f"Kafka {self.version} is not up; exit codes {dead}\n{self.log_text()}")
                time.sleep(0.1)

    def log_text(self) -> str:
        """Return the warnings and errors of the running brokers."""
        return "\n".join(f"--- broker {node}\n{process.log_text()}" for node, process in self._processes.items())

    def _format(self, node_id: int) -> None:
        """Do the same as ``kafka-storage format``, without its JVM."""
        storage = self._folder(node_id) / "data"
        # Before 4.4 a checkpoint, since then a snapshot in a folder.
        shutil.copytree(formatted_storage(self.version), storage, ignore=shutil.ignore_patterns("*.properties"))
        (storage / "meta.properties").write_text(f"version=1\nnode.id={node_id}\ncluster.id={CLUSTER_ID}\n")

    def _start(self, node_id: int) -> None:
        broker, folder = self.brokers[node_id], self._folder(node_id)
        ports = {"PLAINTEXT": broker.port, "TAPPED": broker.behind_tap_port, "INTERNAL": broker.internal_port}
        ports |= broker.more_ports
        properties = server_properties(
            node_id,
            self.racks[node_id],
            folder / "data",
            {each.node_id: f"{HOST}:{each.controller_port}" for each in self.brokers.values()},
            self._addresses(ports),
            self._addresses({**ports, "TAPPED": broker.tap_port}),
        )
        options = (
            *self._jvm,
            *(f"-Dorg.slf4j.simpleLogger.{setting}" for setting in _LOGGING),
            *(f"-Dcom.sun.management.jmxremote{option}" for option in _jmx_options(broker.jmx_port)),
            f"-Djava.rmi.server.hostname={HOST}",
        )
        properties |= {**self._settings, **self._of_broker.get(node_id, {})}
        self._processes[node_id] = Process(
            broker_command(class_path(self.version), folder, properties, options),
            log=folder / f"kafka-{self.version}-broker-{node_id}.log",
            cwd=folder,
        )

    def _addresses(self, ports: Mapping[str, int]) -> dict[str, str]:
        return {name: f"{self._hosts.get(name, HOST)}:{port}" for name, port in ports.items()}

    def _folder(self, node_id: int) -> Path:
        assert self._home is not None, "not in context"
        return self._home / f"broker-{node_id}"


def _more(ports: Sequence[int], listeners: Sequence[str]) -> tuple[int, int, int, int, int, dict[str, int]]:
    tap, behind_tap, internal, controller, jmx, *more = ports
    return tap, behind_tap, internal, controller, jmx, dict(zip(listeners, more, strict=True))


def _jmx_options(port: int) -> tuple[str, ...]:
    return ("", f".port={port}", f".rmi.port={port}", f".host={HOST}", ".authenticate=false", ".ssl=false")


def _sees(address: str, node_ids: set[int]) -> bool:
    """Does the broker at *address* know exactly these as alive?"""
    request = MetadataRequest(topics=(), include_topic_authorized_operations=False)
    try:
        return {broker.node_id for broker in ask(address, request).brokers} == node_ids
    except OSError:
        return False
