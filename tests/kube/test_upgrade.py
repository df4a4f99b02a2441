"""A gateway is upgraded and rolled back, a pod at a time, while a member of a group reads through it."""

import itertools
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.clients.conversation import Client
from tests.kafka.admin import Admin, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import by_partition
from tests.kube.service import Service
from tests.ports import free_port_range
from tests.sidefetch import Sidefetch

pytestmark = pytest.mark.kafka

PORTS = 11
BATCH, PAUSE_S = 60, 0.05
OLD, NEW = ("127.0.0.2", "127.0.0.3"), ("127.0.0.4", "127.0.0.5")
"""Addresses of the pods of both versions."""


class Gateway:
    """Pods behind a Service, while in context."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.port = free_port_range(PORTS)
        self._cluster = cluster
        self._service = Service(range(self.port, self.port + PORTS))
        self._pods: dict[str, Sidefetch] = {}
        self.connections: list[int] = []
        """The connections of each pod that has ended."""

    def __enter__(self) -> "Gateway":
        self._service.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        for address in list(self._pods):
            self.stop(address)
        self._service.__exit__(None, None, None)

    def start(self, address: str) -> None:
        """A pod as the chart has it: at the same ports as every other, and the Service is whom clients know."""
        port = self.port
        listen = ["--listen", f"{address}:{port}", "--broker-ports", f"{port + 1}-{port + PORTS - 1}"]
        pod = Sidefetch(self._cluster.bootstrap, options=[*listen, "--advertise", "127.0.0.1"], grace_s=1.0)
        self._pods[address] = pod.__enter__()
        self._service.ready = tuple(self._pods)

    def stop(self, address: str) -> None:
        """Out of the Service first; those that are connected stay for the grace, and are closed then."""
        pod = self._pods.pop(address)
        self._service.ready = tuple(self._pods)
        pod.__exit__(None, None, None)
        self.connections += map(int, re.findall(r"\bstopped\b.*\bconnections=(\d+)", pod.log_text()))

    def roll(self, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        """Each new pod serves before the old one leaves."""
        for gone, comes in zip(old, new, strict=True):
            self.start(comes)
            self.stop(gone)


@pytest.mark.parametrize(
    ("name", "pods"),
    [
        ("java-0.10.2.2", 1),
        *(pytest.param(name, 2, marks=pytest.mark.long) for name in ("java-0.10.2.2", "kafkajs", "librdkafka")),
    ],
)
def test_an_upgrade_and_a_rollback_under_load_lose_and_repeat_nothing(
    name: str, pods: int, kafka4: KafkaCluster
) -> None:
    operator = Admin(kafka4)
    topic, is_rolled = operator.create_topic(unique("upgraded"), 3), threading.Event()

    def write() -> int:
        """Return the number of records."""
        for number in itertools.count():
            if is_rolled.is_set():
                return number * BATCH
            operator.produce_known(topic, BATCH, 3, first=number * BATCH)
            time.sleep(PAUSE_S)
        raise AssertionError

    with Gateway(kafka4) as gateway, Client(name) as client, ThreadPoolExecutor() as beside:
        for address in OLD[:pods]:
            gateway.start(address)
        bootstrap = f"127.0.0.1:{gateway.port}"
        member = client.begin("group", bootstrap, topic, group=unique("group"), count=1_000_000)
        writing = beside.submit(write)
        try:
            member.wait_for(BATCH)
            gateway.roll(OLD[:pods], NEW[:pods])
            gateway.roll(NEW[:pods], OLD[:pods])
        finally:
            is_rolled.set()
        count = writing.result()
        member.wait_for(count)

    by_offset = {part: [each.offset for each in each_of] for part, each_of in by_partition(member.records).items()}
    assert by_offset == {partition: list(range(count // 3)) for partition in range(3)}
    if pods == 1:
        assert len(gateway.connections) == 3
        assert all(gateway.connections)
