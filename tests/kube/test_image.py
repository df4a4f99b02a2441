"""The image, built and run with real container tools."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from kafka import KafkaConsumer, TopicPartition

from proxy.config import LimitsConfig
from proxy.kube.sizes import limit_bytes, max_connections, request_memory_bytes
from tests.bench.conversion import old_read
from tests.bench.old_reader import OldJob
from tests.bench.reader import Job
from tests.bench.stage import fill, read
from tests.kafka.admin import Admin, eventually, unique
from tests.kafka.cluster import KafkaCluster
from tests.kube.charts import documents_of
from tests.kube.images import ROOT, Container, Image, built, ran, removed
from tests.ports import free_port_range

pytestmark = [pytest.mark.kubernetes, pytest.mark.kafka]

MOST_BYTES = 110_000_000
MIB = 1024**2
PARTITIONS, EVERYTHING = 4, 250_000_000


@pytest.fixture(scope="module")
def build() -> Iterator[tuple[Image, str]]:
    image, reported = built()
    yield image, reported
    removed(image)


@pytest.fixture(scope="module")
def image(build: tuple[Image, str]) -> Image:
    return build[0]


def settings(cluster: KafkaCluster) -> tuple[int, dict[str, str]]:
    """The port that it listens on, those of the brokers being behind it, and the variables that say so."""
    port = free_port_range(12)
    return port, {
        "SIDEFETCH_BOOTSTRAP_SERVERS": cluster.bootstrap,
        "SIDEFETCH_LISTEN": f"127.0.0.1:{port}",
        "SIDEFETCH_BROKER_PORTS": f"{port + 1}-{port + 10}",
        "SIDEFETCH_ADMIN_LISTEN": f"127.0.0.1:{port + 11}",
        "SIDEFETCH_GRACE": "1s",
    }


def wait_until_it_serves(container: Container) -> float:
    """Return the seconds until it serves."""
    began = time.monotonic()
    eventually(lambda: "listening" in container.log_text(), "a listener")
    return time.monotonic() - began


def test_image_serves_consumer_on_read_only_file_system_without_capabilities(
    image: Image, kafka4: KafkaCluster
) -> None:
    topic, produced = Admin(kafka4).filled_topic("from-a-container", 3)
    port, variables = settings(kafka4)

    with Container.running(image, "run", env=variables) as container:
        print(f"serves after {wait_until_it_serves(container):.2f} s, with the container's start")
        consumer = KafkaConsumer(bootstrap_servers=f"127.0.0.1:{port}", auto_offset_reset="earliest")
        consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
        read_back = [next(consumer) for _ in produced]
        consumer.close()
        status, health = container.status, container.executed("sidefetch", "health")
        check = container.executed("sidefetch", "check")
        exit_code = container.stopped()

    assert Counter((each.partition, each.value) for each in read_back) == Counter(
        (each.partition, each.value) for each in produced
    )
    assert status["Uid"].split() == status["Gid"].split() == ["65532"] * 4
    assert (int(status["CapEff"], 16), int(status["CapBnd"], 16), status["NoNewPrivs"]) == (0, 0, "1")
    assert (health.returncode, health.stdout) == (0, "yes\n")
    assert check.returncode == 0, check.stdout
    assert exit_code == 0


def of_today(leader: str, topic: str) -> int:
    count = read(Job(leader, {topic: PARTITIONS}, max_bytes=EVERYTHING, partition_bytes=EVERYTHING))
    return count.record_bytes


def of_2015(leader: str, topic: str) -> int:
    """It is converted for."""
    return old_read(OldJob(leader, topic, PARTITIONS, version=1, partition_bytes=EVERYTHING)).entry_bytes


@pytest.fixture(scope="module")
def topics(kafka4: KafkaCluster) -> list[str]:
    """One for each of eight clients; all are led by one broker."""
    operator = Admin(kafka4)
    names = [operator.create_topic(unique("greedy"), assignment=[[1]] * PARTITIONS) for _ in range(8)]
    for name in names:
        fill(kafka4, name, PARTITIONS, megabytes=40)
    return names


@pytest.mark.parametrize(("client", "memory"), [(of_today, 16 * MIB), (of_2015, 16 * MIB), (of_2015, 64 * MIB)])
def test_concurrent_large_fetches_stay_below_the_container_memory_limit(
    client: Callable[[str, str], int], memory: int, image: Image, kafka4: KafkaCluster, topics: list[str]
) -> None:
    port, variables = settings(kafka4)
    limits = LimitsConfig(
        request_memory_bytes=request_memory_bytes(memory), max_connections=max_connections(memory)
    )
    sizes = {
        "SIDEFETCH_MEMORY": memory,
        "SIDEFETCH_REQUEST_MEMORY": limits.request_memory_bytes,
        "SIDEFETCH_MAX_CONNECTIONS": limits.max_connections,
    }
    variables |= {name: str(size) for name, size in sizes.items()}
    limit = limit_bytes(memory, limits)

    with Container.running(image, "run", env=variables, memory_bytes=limit) as container:
        wait_until_it_serves(container)
        leader = f"127.0.0.1:{port + 1 + 1}"
        with ThreadPoolExecutor(len(topics)) as at_once:
            record_bytes = list(at_once.map(partial(client, leader), topics))
        peak_bytes = int(re.findall(r"\d+", container.status["VmHWM"])[0]) * 1024

    print(f"peak {peak_bytes / MIB:.0f} MiB of {limit / MIB:.0f}")
    assert all(each >= 40_000_000 for each in record_bytes)
    assert peak_bytes < limit


def test_image_contains_the_tools_of_transparent_mode(image: Image) -> None:
    """In a network of its own, with the one right that the init step has."""
    rights = ["--user", "0", "--cap-add", "NET_ADMIN"]

    ran(image, "redirect", "install", options=rights)


def test_image_contains_the_dependencies_of_injection(image: Image) -> None:
    manifest = (ROOT / "deploy" / "kubernetes" / "application.yaml").read_text(encoding="utf-8")

    (injected,) = documents_of(ran(image, "inject", "-f", "-", said=manifest))

    assert injected["spec"]["template"]["spec"]["initContainers"][0]["name"] == "sidefetch"
    assert "--self-signed" in ran(image, "webhook", "--help")


def test_there_is_no_shell_and_nothing_to_install_with(image: Image) -> None:
    programs = {path.name for path in image.files() if path.parent.name in ("bin", "sbin")}

    assert {re.sub(r"[\d.]+$", "", name) for name in programs} == {"sidefetch", "python", "nft"}


def test_it_is_small(build: tuple[Image, str]) -> None:
    image, reported = build
    parts = re.findall(r"^ +[\d.]+ MB  .*", reported, re.MULTILINE)
    print(*parts, sep="\n")

    assert len(parts) == 6
    assert image.size_bytes < MOST_BYTES
