"""The examples of deploy/ that are for no cluster: clients that are pointed to a sidecar, and a unit of systemd."""

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer

from proxy.config import OPTIONS, LimitsConfig, option_named
from proxy.kube.sizes import limit_bytes
from tests.clients.programs import PROGRAMS
from tests.kafka.admin import Admin, eventually, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.java import java_command
from tests.kept import kept, run
from tests.prerequisites import require
from tests.processes import Process
from tests.sidefetch import Sidefetch

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
CLIENTS: Final = DEPLOY / "clients"
OF_TESTS: Final = Path(__file__).parents[1] / "clients"
UNIT: Final = (DEPLOY / "systemd" / "sidefetch.service").read_text(encoding="utf-8")
VALUES: Final = [f"value-{number}" for number in range(60)]


def java() -> list[str]:
    require("java", "maven")
    return java_command(CLIENTS / "Consumer.java", "0.10.2.2", what="kafka-clients")


def sarama() -> list[str]:
    """Built with the version that the tests' own clients pin."""
    require("go")
    sources = [CLIENTS / "consumer.go", OF_TESTS / "go" / "go.mod", OF_TESTS / "go" / "go.sum"]

    def build(folder: Path) -> None:
        for source in sources:
            shutil.copy(source, folder)
        run(["go", "build", "-o", "consumer", "consumer.go"], timeout_s=300, cwd=folder)

    return [str(kept("example-sarama", sources, build) / "consumer")]


def kafka_python() -> list[str]:
    env, libraries, *_ = PROGRAMS["kafka-python-1.4.7-as-0.9"]()
    return [env, libraries, sys.executable, "-W", "ignore", str(CLIENTS / "consumer.py")]


def kafkajs() -> list[str]:
    *_, program = PROGRAMS["kafkajs"]()
    modules = Path(program).parent / "node_modules"
    return ["env", f"NODE_PATH={modules}", "node", str(CLIENTS / "consumer.js")]


def librdkafka() -> list[str]:
    require("c", "librdkafka")
    source = CLIENTS / "consumer.c"

    def build(folder: Path) -> None:
        flags = ["-Wall", "-Werror", "-o", str(folder / "consumer")]
        run(["cc", *flags, str(source), "-lrdkafka"], timeout_s=60)

    return [str(kept("example-librdkafka", [source], build) / "consumer")]


@pytest.mark.kafka
@pytest.mark.parametrize(
    "command", [java, sarama, kafka_python, kafkajs, pytest.param(librdkafka, marks=pytest.mark.kubernetes)]
)
def test_each_example_of_a_client_reads_through_sidefetch(
    command: Callable[[], list[str]], kafka4: KafkaCluster, tmp_path: Path
) -> None:
    topic = Admin(kafka4).create_topic(unique("example"), 3)
    producer = Producer({"bootstrap.servers": kafka4.bootstrap, "log_level": 0})
    for value in VALUES:
        producer.produce(topic, value)
    producer.flush()
    log = tmp_path / "client.log"

    with Sidefetch(kafka4.bootstrap) as sidefetch:
        client = Process([*command(), topic], log=log, env={"KAFKA_BOOTSTRAP_SERVERS": sidefetch.bootstrap})
        try:
            eventually(lambda: log.read_text(encoding="utf-8").count("value-") >= len(VALUES), "all values")
        finally:
            client.kill()

    read = [line for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("value-")]
    assert sorted(read) == sorted(VALUES)


def test_readme_lists_every_client_example() -> None:
    reported = re.findall(r"\]\((\w+\.\w+)\)", (CLIENTS / "README.md").read_text(encoding="utf-8"))

    assert sorted(reported) == sorted(path.name for path in CLIENTS.iterdir() if path.suffix != ".md")


def default_of(option: str) -> Any:
    return option_named(option).default


def test_the_unit_bounds_memory_by_the_same_formula_as_pods() -> None:
    (limit,) = re.findall(r"^MemoryMax=(\d+)M$", UNIT, re.MULTILINE)

    assert int(limit) * 1024**2 == limit_bytes(default_of("memory"), LimitsConfig())


def test_the_unit_sets_options_that_there_are_and_lets_them_drain() -> None:
    (stop_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)

    assert set(re.findall(r"SIDEFETCH_[A-Z_]+(?==)", UNIT)) <= {option.env for option in OPTIONS}
    assert int(stop_s) > default_of("grace")
