"""A cluster of real brokers for the demo: three brokers of Apache Kafka on loopback, behind a counting relay.

The brokers have small heaps and write into a temporary folder that is removed at the end. Each partition that gets
records has a replica in each rack. The jars come from Maven Central and stay in the user's cache folder.
"""

import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from proxy.demo.batches import encode_batch
from proxy.demo.client import KafkaConnection, connect
from proxy.demo.costs import FetchCost
from proxy.demo.kafka_server import QUICK_JVM, broker_command, fetch_command, pom, server_properties
from proxy.demo.messages import encode_request, read_response
from proxy.demo.processes import DemoFailed, find_free_ports, is_serving, run_program
from proxy.demo.stage import BUSY, EVERY_S, PARTITIONS, TOPIC, Stage, busy, record
from proxy.demo.tap import Tap, tap

__all__ = ["VERSIONS", "kafka_stage"]

VERSIONS: Final[Mapping[str, str]] = {"3": "3.9.2", "4": "4.3.1"}
_JAVA: Final = 17
_HOST: Final = "127.0.0.1"
_RACKS: Final = "abc"
_REASSIGN: Final = (45, 0)
"""AlterPartitionReassignments: its API key, and the version in use."""
_CLUSTER_ID: Final = "c2lkZWZldGNoLWRlbW8hIQ"
_START_S: Final = 60.0
_JVM: Final = (*QUICK_JVM, "-Xmx320m")
_DEPENDENCIES: Final = ("org.apache.kafka:kafka_2.13:{}", "org.slf4j:slf4j-simple:1.7.36")


@attrs.frozen
class _Broker:
    """The ports of a broker: clients connect to ``tapped``, which the relay forwards to ``port``.

    ``controller`` and ``internal`` are for connections between brokers.
    """

    node: int
    tapped: int
    port: int
    controller: int
    internal: int
    rack: str


class _Kafka:
    def __init__(self, version: str, brokers: Sequence[_Broker], seen: Tap) -> None:
        self.what = f"Apache Kafka {version}: {len(brokers)} brokers on this machine."
        self.counted = "on the wire in front of the brokers"
        self.bootstrap = ",".join(f"127.0.0.1:{broker.tapped}" for broker in brokers)
        self._seen = seen
        self._racks = {broker.port: broker.rack for broker in brokers}

    def cost(self) -> FetchCost:
        racks = {rack: self._seen.record_bytes[port] for port, rack in self._racks.items()}
        return attrs.evolve(self._seen.cost, from_racks=racks)


@asynccontextmanager
async def kafka_stage(major: str, say: Callable[[str], None]) -> AsyncIterator[Stage]:
    """Return an async context manager that runs three real Kafka brokers with the demo's topic, and writes records.

    The first time, it downloads Kafka with Maven. The context begins once each busy partition has a record.

    Args:   major: "3" or "4", a key of VERSIONS.
            say: is called with each line about the progress, for the user.
    Raises: DemoFailed: Java or Maven is missing, or Kafka did not start.
    """
    version = VERSIONS[major]
    await _check_tools()
    jars = await _jars(version, say)
    say(f"Starting three brokers of Apache Kafka {version} ...")
    first = find_free_ports(12)
    brokers = [
        _Broker(node, at, at + 1, at + 2, at + 3, rack)
        for node, (at, rack) in enumerate(zip(range(first, first + 12, 4), _RACKS, strict=True), start=1)
    ]
    with tempfile.TemporaryDirectory(prefix="sidefetch-demo-kafka-") as folder:
        home = Path(folder)
        commands = await _format(jars, home, brokers)
        async with AsyncExitStack() as stack:
            for broker, command in zip(brokers, commands, strict=True):
                await stack.enter_async_context(run_program(command, log=_folder(home, broker) / "log", kill=True))
            seen = await stack.enter_async_context(tap({each.tapped: each.port for each in brokers}))
            stage = _Kafka(version, brokers, seen)
            leaders = await _create_topic(stage.bootstrap, home)
            nursery = await stack.enter_async_context(trio.open_nursery())
            with trio.move_on_after(_START_S) as starting:
                await nursery.start(_feed, leaders)
            if starting.cancelled_caught:
                raise DemoFailed(f"Kafka did not take a record for each partition within {_START_S:g} s")
            yield stage
            nursery.cancel_scope.cancel()


async def _check_tools() -> None:
    missing = [name for name in ("java", "mvn") if shutil.which(name) is None]
    if missing:
        raise DemoFailed(f"real brokers need Java {_JAVA} or newer and Maven; not found: {', '.join(missing)}")
    java = await trio.run_process(["java", "-version"], capture_stderr=True, check=False)
    release = re.search(rb'version "(?:1\.)?(\d+)', java.stderr)
    if release is None or int(release[1]) < _JAVA:
        line = (java.stderr.decode(errors="replace").splitlines() or ["it says nothing"])[0]
        raise DemoFailed(f"real brokers need Java {_JAVA} or newer; java -version says: {line}")


async def _run(command: Sequence[str], what: str) -> None:
    done = await trio.run_process(
        command, capture_stdout=True, capture_stderr=True, check=False, start_new_session=True
    )
    if done.returncode:
        output = (done.stdout + done.stderr).decode(errors="replace").splitlines()
        raise DemoFailed("\n".join([f"{what} failed:", *output[-8:]]))


async def _jars(version: str, say: Callable[[str], None]) -> Path:
    """Return the folder with Kafka's jars; download them if they are missing."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "sidefetch" / "kafka" / version
    if (folder / "pom.xml").is_file():
        return folder
    say(f"Fetching Apache Kafka {version} with Maven, once: some 45 MB ...")
    fresh = Path(tempfile.mkdtemp(prefix=f"sidefetch-kafka-{version}-"))
    try:
        dependencies = [each.format(version) for each in _DEPENDENCIES]
        (fresh / "pom.xml").write_text(pom("demo-kafka", version, dependencies))
        await _run(fetch_command(fresh / "pom.xml", fresh / "jars"), "Maven")
        folder.mkdir(parents=True, exist_ok=True)
        for jar in (fresh / "jars").iterdir():
            shutil.move(jar, folder / jar.name)
        shutil.move(fresh / "pom.xml", folder / "pom.xml")  # last: it marks a complete folder
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return folder


def _folder(home: Path, broker: _Broker) -> Path:
    return home / f"broker-{broker.node}"


async def _format(jars: Path, home: Path, brokers: Sequence[_Broker]) -> list[list[str]]:
    """Write each broker's properties and storage; return the commands that start the brokers.

    Kafka's tool runs once for all, since a JVM takes a second.
    """
    commands = []
    for broker in brokers:
        folder = _folder(home, broker)
        (folder / "data").mkdir(parents=True)
        options = (*_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        properties = _properties(broker, brokers, folder / "data")
        commands.append(broker_command(f"{jars}/*", folder, properties, options))
    first, *others = (_folder(home, broker) for broker in brokers)
    tool = ["java", *_JVM, "-cp", f"{jars}/*", "kafka.tools.StorageTool", "format"]
    await _run([*tool, "-t", _CLUSTER_ID, "-c", str(first / "server.properties")], "Kafka's storage tool")
    for broker, folder in zip(brokers[1:], others, strict=True):
        shutil.copy(first / "data" / "bootstrap.checkpoint", folder / "data")
        meta = f"version=1\nnode.id={broker.node}\ncluster.id={_CLUSTER_ID}\n"
        (folder / "data" / "meta.properties").write_text(meta)
    return commands


def _properties(broker: _Broker, brokers: Sequence[_Broker], data: Path) -> dict[str, object]:
    controllers = {each.node: f"{_HOST}:{each.controller}" for each in brokers}
    listeners = {"CLIENTS": f"{_HOST}:{broker.port}", "INTERNAL": f"{_HOST}:{broker.internal}"}
    advertised = {**listeners, "CLIENTS": f"{_HOST}:{broker.tapped}"}
    properties = server_properties(broker.node, broker.rack, data, controllers, listeners, advertised)
    return {**properties, "offsets.topic.replication.factor": 1}


async def _create_topic(bootstrap: str, home: Path) -> dict[int, tuple[str, list[int]]]:
    """Create the topic once the brokers run; return each broker's address and the busy partitions that it leads.

    Returns: address and partitions, by node id.
    Raises:  DemoFailed: Kafka did not start in time, or refused the topic.
    """
    with trio.move_on_after(_START_S):
        while not all([await is_serving(address) for address in bootstrap.split(",")]):
            await trio.sleep(0.2)
        async with connect(bootstrap) as connection:
            while len((await connection.call("metadata", 12, {"topics": []})).brokers) < bootstrap.count(",") + 1:
                await trio.sleep(0.2)
            wanted = {"name": TOPIC, "num_partitions": -1, "replication_factor": -1, "configs": []}
            request = {"topics": [{**wanted, "assignments": _assignments()}], "timeout": 30_000}
            (created,) = (await connection.call("create_topics", 7, request)).topics
            if created.error_code:
                raise DemoFailed(f"Kafka did not create the topic: {created.error_message}")
            while await _leaders(connection) is None:
                await trio.sleep(0.2)
            await _replicate(connection)
            while (leaders := await _leaders(connection, replicas=len(_RACKS))) is None:
                await trio.sleep(0.2)
            return leaders
    logs = [line for log in sorted(home.glob("*/log")) for line in log.read_text(errors="replace").splitlines()]
    raise DemoFailed("\n".join([f"Kafka did not come up within {_START_S:g} s:", *logs[-8:]]))


def _assignments() -> list[dict[str, Any]]:
    """Return an assignment with one replica of each partition; each broker has a third of them, with busy ones."""
    return [{"partition_index": index, "broker_ids": _replicas(index)[:1]} for index in range(PARTITIONS)]


def _replicas(index: int) -> list[int]:
    nodes = len(_RACKS)
    return [(index + each) % nodes + 1 for each in range(nodes)]


async def _replicate(connection: KafkaConnection) -> None:
    """Give busy partitions a replica in each rack; for all partitions, that would take Kafka long."""
    partitions = [{"partition_index": index, "replicas": _replicas(index)} for index in busy()]
    request = {"timeout": 30_000, "topics": [{"name": TOPIC, "partitions": partitions}]}
    await connection.send_frame(encode_request(*_REASSIGN, 0, "sidefetch-demo", request))
    answer = await connection.receive_frame()
    if answer is None:
        raise DemoFailed("Kafka closed the connection when asked to replicate the topic")
    _, response = read_response(*_REASSIGN, answer)
    if response.error_code or any(each.error_code for topic in response.responses for each in topic.partitions):
        raise DemoFailed(f"Kafka did not replicate the topic: {response}")


async def _leaders(connection: KafkaConnection, replicas: int = 1) -> dict[int, tuple[str, list[int]]] | None:
    """Return each broker's address and the busy partitions that it leads, by node id.

    Returns: None while a partition has no leader, or a busy one has fewer than *replicas* in sync.
    """
    metadata = await connection.call("metadata", 12, {"topics": [{"name": TOPIC}]})
    (topic,) = metadata.topics
    if len(topic.partitions) < PARTITIONS or any(partition.error_code for partition in topic.partitions):
        return None
    at_work = [partition for partition in topic.partitions if partition.partition_index in busy()]
    if any(len(partition.isr_nodes) < replicas for partition in at_work):
        return None
    leader_of = {partition.partition_index: partition.leader_id for partition in topic.partitions}
    return {
        broker.node_id: (
            f"{broker.host}:{broker.port}",
            [index for index in busy() if leader_of[index] == broker.node_id],
        )
        for broker in metadata.brokers
    }


async def _feed(
    leaders: Mapping[int, tuple[str, list[int]]], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Write records to the busy partitions for ever; ``task_status`` is called once each has one on all replicas.

    *leaders* has the address of each broker and the busy partitions that it leads, by node id.
    """
    async with AsyncExitStack() as stack:
        to: dict[int, KafkaConnection] = {}
        for address, partitions in leaders.values():
            connection = await stack.enter_async_context(connect(address))
            to.update(dict.fromkeys(partitions, connection))
        for partition in busy():
            while await _write(to[partition], partition, 0, acks=-1):
                await trio.sleep(0.1)  # its leader or its replicas have not learnt of it yet
        task_status.started()
        for number in count(1):
            for partition in busy():
                await _write(to[partition], partition, number, acks=1)
                await trio.sleep(EVERY_S / BUSY)


async def _write(leader: KafkaConnection, partition: int, number: int, *, acks: int) -> int:
    """Write record *number* to a partition; return the error code. With *acks* -1, all in-sync replicas have it."""
    data = [{"index": partition, "records": encode_batch([record(number)])}]
    request = {"acks": acks, "timeout": 30_000, "topic_data": [{"name": TOPIC, "partition_data": data}]}
    (topic,) = (await leader.call("produce", 9, request)).responses
    return int(topic.partition_responses[0].error_code)
