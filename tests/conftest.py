"""Fixtures for the tests of all folders, and the ends of process logs in the reports of failed tests."""

import os
import signal
from collections.abc import Generator, Iterator

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling

from proxy.errors import leaves
from tests.forms import in_short
from tests.kafka.admin import Admin
from tests.kafka.cluster import KafkaCluster
from tests.prerequisites import require
from tests.processes import forget_ended, log_tails

# Every Sidefetch that a test starts, here or as a process, asserts its rule of liveness after each event.
os.environ["CHECK_SIDEFETCH_LIVENESS"] = "1"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell makes its background jobs ignore Ctrl-C, and all programs that the tests start would ignore it, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--short", action="store_true", help="leave out tests that resemble others (tests/forms.py)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--short"):
        kept = in_short(items)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


class _ByFile(LoadFileScheduling):  # type: ignore[misc]
    """Give each file to one process, and all files that use Spark to the same one, which starts Spark once."""

    def _split_scope(self, nodeid: str) -> str:
        return "tests/analysis" if nodeid.startswith("tests/analysis/") else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadFileScheduling:
    return _ByFile(config, log)


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


def pytest_runtest_setup() -> None:
    forget_ended()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: "pytest.CallInfo[None]",
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of each process's log when a test fails, and why a test of trio's was skipped."""
    report = yield
    if report.failed:
        report.sections.extend((f"end of the log of {name}", tail) for name, tail in log_tails())
    if report.skipped and call.excinfo is not None and isinstance(report.longrepr, tuple):
        # pytest-trio skips anew for a skip that it caught, and forgets the reason on the way.
        group = call.excinfo.value.__context__
        reasons = group.subgroup(pytest.skip.Exception) if isinstance(group, BaseExceptionGroup) else None
        if reasons is not None:
            path, line, _ = report.longrepr
            report.longrepr = (path, line, f"Skipped: {next(leaves(reasons))}")
    return report
