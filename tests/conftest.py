"""Fixtures that tests of every folder may ask for, and what a failed test's report says of its processes."""

from collections.abc import Generator, Iterator

import pytest

from tests.kafka.admin import Admin
from tests.kafka.cluster import KafkaCluster
from tests.prerequisites import require
from tests.processes import log_tails


def _cluster(version: str) -> Iterator[KafkaCluster]:
    require("java", "maven")
    with KafkaCluster(version) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka4() -> Iterator[KafkaCluster]:
    """Three brokers of the newest Kafka, for all tests: leave them as you found them, or start your own."""
    yield from _cluster("4.3.1")


@pytest.fixture(scope="session")
def kafka39() -> Iterator[KafkaCluster]:
    """Three brokers of the last Kafka that still speaks the old versions, for all tests."""
    yield from _cluster("3.9.2")


@pytest.fixture(scope="session", params=["kafka4", "kafka39"])
def kafka(request: pytest.FixtureRequest) -> KafkaCluster:
    """Each of the two clusters in turn."""
    cluster: KafkaCluster = request.getfixturevalue(request.param)
    return cluster


@pytest.fixture(scope="session")
def admin(kafka: KafkaCluster) -> Admin:
    """Acts on ``kafka`` directly."""
    return Admin(kafka)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of every running process's log when a test fails."""
    report = yield
    if report.failed:
        report.sections.extend((f"end of the log of {name}", tail) for name, tail in log_tails())
    return report
