"""Two ways to a cluster, and one process for each client, for all tests of the folder."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.clients.conversation import Client
from tests.clients.programs import CLIENTS
from tests.kafka.admin import Admin
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import Filled, Record
from tests.sidefetch import Sidefetch


@pytest.fixture(scope="session", params=[pytest.param("direct", marks=pytest.mark.long), "through"])
def bootstrap(request: pytest.FixtureRequest, kafka: KafkaCluster) -> Iterator[str]:
    """The bootstrap address of a client: that of the brokers, or of a Sidefetch in front of them."""
    if request.param == "direct":
        yield kafka.bootstrap
    else:
        with Sidefetch(kafka.bootstrap) as sidefetch:
            yield sidefetch.bootstrap


@pytest.fixture(scope="package")
def programs() -> Iterator[Callable[[str], Client]]:
    """Gives the running program of a client's name; one process serves all tests of the folder."""
    with ExitStack() as running:
        started: dict[str, Client] = {}

        def program(name: str) -> Client:
            if name not in started:
                started[name] = running.enter_context(Client(name))
            elif not started[name].is_running:
                started[name].restart()
            return started[name]

        yield program


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest, programs: Callable[[str], Client]) -> Client:
    """Each of the real clients in turn."""
    return programs(request.param)


@pytest.fixture(scope="session")
def filled(admin: Admin) -> Filled:
    """A topic of so many partitions with 1,000 known records, and these; made once for each cluster."""
    made: dict[int, tuple[str, list[Record]]] = {}

    def topic(partitions: int) -> tuple[str, list[Record]]:
        if partitions not in made:
            made[partitions] = admin.filled_topic(f"known-{partitions}", partitions)
        return made[partitions]

    return topic
