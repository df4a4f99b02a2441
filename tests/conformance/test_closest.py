"""Record bytes come from the reader's own rack if possible, by the brokers' own counters, and every record once.

Three ways, through the same disturbances of the broker in the reader's rack:

- ``reference``: Apache's current Java client with a rack, directly. It shows that reads from the closest replica
    work
  in this cluster, and that the test would notice if they did not; once without a disturbance and once with.
- ``broker``: clients that know nothing of racks, through Sidefetch, which follows the leaders' preferred replicas.
- ``selector``: the same on brokers without a ``replica.selector.class``, so that Sidefetch selects by itself.

All clients of a way read at the same time, each on its own, so that every client without sessions meets every
disturbance: the broker of the rack is killed, returns without a rack, is stopped in good order and returns with it;
leaves the in-sync set and lags behind (it stalls, then its replication is throttled); loses its replicas and gets
them back; and (irrelevant for Sidefetch's own selection) leaders move elsewhere. Clients with fetch sessions read
without disturbances.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import attrs
import pytest

from tests.clients.conversation import Client, Task
from tests.kafka.admin import Admin, eventually, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.metrics import record_bytes_out
from tests.kafka.records import Record, by_partition, known_records
from tests.sidefetch import Sidefetch

pytestmark = [pytest.mark.kafka, pytest.mark.in_turn]

Programs = Callable[[str], Client]

WAYS: Final = (pytest.param("reference", marks=pytest.mark.long), "broker", "selector")

LOCAL: Final = 1
"""The broker in the readers' rack."""
RACK: Final = "a"
ELSEWHERE: Final = [[2, 1, 3], [3, 1, 2], [2, 3, 1]]
"""Three partitions, all kept in the rack and led in others."""
WITHOUT_LOCAL: Final = [[2, 3], [3, 2], [2, 3]]
REFERENCE: Final = "java"
OLD_READERS: Final = ("java-0.10.2.2", "kafka-python", "kafkajs", "librdkafka")
READERS_IN_SESSIONS: Final = ("java-2.0.1", "java", "franz-go")
"""The two current ones would read from the closest replica themselves if they had a rack."""
HEADLESS: Final = ("java-0.10.2.2",)
"""Their records have no headers."""
IN_GROUPS: Final = ("kafkajs",)
"""They cannot read otherwise."""
AGE_S: Final = 1
"""The age limit of preferred replicas: the shortest that Sidefetch accepts."""
IN_SYNC_S: Final = 2
"""A replica that has not caught up for so long leaves the in-sync set."""
BEHIND: Final = 900
"""Records that a replica has missed: more than it fetches before the throttle holds it back."""
ENDLESS: Final = 1_000_000
"""More records than there are: a program that is still at it is started anew for the next test."""
FIRST: Final = 1_500
MORE: Final = 60
HOMING_S: Final = 30.0

_SETTINGS: Final = {
    "replica.lag.time.max.ms": IN_SYNC_S * 1000,
    # A broker that stalls until it is out of sync does not count as gone.
    "broker.session.timeout.ms": 6_000,
    # One batch at a time: a throttle delays the next one.
    "replica.fetch.max.bytes": 1_024,
}


@attrs.frozen
class Way:
    """Brokers, and how clients come to them."""

    cluster: KafkaCluster
    operator: Admin
    bootstrap: str
    readers: tuple[str, ...]
    readers_in_sessions: tuple[str, ...] = ()
    """Clients that have fetch sessions with whom they fetch from."""
    more: Mapping[str, object] = {}
    """Further options of the readers."""


@pytest.fixture(scope="module")
def selecting() -> Iterator[KafkaCluster]:
    """A cluster of this module alone, whose leaders name the replica to read from; each test leaves it whole."""
    with KafkaCluster("4.3.1", settings=_SETTINGS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def unselecting() -> Iterator[KafkaCluster]:
    """Start the same cluster without a replica selector."""
    with KafkaCluster("4.3.1", settings={**_SETTINGS, "replica.selector.class": None}) as cluster:
        yield cluster


@pytest.fixture(scope="module", params=["broker", "selector"])
def way(request: pytest.FixtureRequest, programs: Programs) -> Iterator[Way]:
    cluster: KafkaCluster = request.getfixturevalue("unselecting" if request.param == "selector" else "selecting")
    if request.param == "reference":
        reported = {"rack": RACK, "rack_age_ms": AGE_S * 1000}
        yield Way(cluster, Admin(cluster), cluster.bootstrap, (REFERENCE,), more=reported)
        programs(REFERENCE).kill()  # it would go on
        return
    options = ["--rack", RACK, "--metadata-max-age", f"{AGE_S}s", "--upstream-max-wait", "2s"]
    if request.param == "selector":
        options += ["--replica-selector", "rack-aware"]
    with Sidefetch(cluster.bootstrap, options=options) as sidefetch:
        yield Way(cluster, Admin(cluster), sidefetch.bootstrap, OLD_READERS, READERS_IN_SESSIONS)
        for name in (*OLD_READERS, *READERS_IN_SESSIONS):
            programs(name).kill()


@pytest.fixture(autouse=True)
def _whole_again(way: Way) -> Iterator[None]:
    """One failed test must not fail the rest."""
    yield
    way.cluster.racks[LOCAL] = RACK
    for node_id in set(way.cluster.brokers) - set(way.cluster.running):
        way.cluster.restart(node_id)


class Reading:
    """All readers of a way at one topic, the records produced to it, and the brokers that they came from."""

    def __init__(
        self,
        way: Way,
        programs: Programs,
        assignment: Sequence[Sequence[int]] = ELSEWHERE,
        *,
        in_sessions: bool = False,
        counts_all_topics: bool = False,
    ) -> None:
        """*counts_all_topics*: where a broker loses its replicas, and with them its count of the topic."""
        self._way = way
        readers = (*way.readers, *way.readers_in_sessions) if in_sessions else way.readers
        self._operator = way.operator
        self.topic = way.operator.create_topic(unique("closest"), assignment=assignment)
        self._counted = () if counts_all_topics else (self.topic,)
        self.produced: list[Record] = []
        self._tasks = {name: self._begin(programs(name)) for name in readers}
        self.produce(FIRST)

    def _begin(self, reader: Client) -> Task:
        how: dict[str, object] = {"partitions": [0, 1, 2], "count": ENDLESS, "wait_ms": 200, **self._way.more}
        if reader.name not in IN_GROUPS:
            return reader.begin("read", self._way.bootstrap, self.topic, **how)
        # A group that loses its coordinator reads again from its last commit, which is not tested here.
        group = unique("group")
        while self._operator.coordinator(group) == LOCAL:
            group = unique("group")
        return reader.begin("group", self._way.bootstrap, self.topic, group=group, **how)

    def produce(self, count: int) -> None:
        records = known_records(count, 3, first=len(self.produced))
        self._operator.produce(self.topic, records, codecs=["none"])
        self.produced += records

    def wait(self) -> None:
        """Return when every reader has all that has been produced."""
        for task in self._tasks.values():
            task.wait_for(len(self.produced))

    def read_more(self, count: int = MORE) -> dict[int, int]:
        """Have more records read; return how many bytes of them each running broker has sent."""
        before = record_bytes_out(self._way.cluster, *self._counted)
        self.produce(count)
        self.wait()
        after = record_bytes_out(self._way.cluster, *self._counted)
        return {node: after[node] - before[node] for node in after}

    def wait_until_read_at(self, *, home: bool) -> None:
        """Have records read until they come from the rack alone; or, without *home*, from other racks alone."""
        eventually(
            lambda: _from_rack(self.read_more()) == home,
            f"{self.topic} read {'at home' if home else 'elsewhere'}",
            timeout_s=HOMING_S,
        )

    def assert_once_and_in_order(self) -> None:
        time.sleep(0.3)  # time for duplicates to arrive
        for name, task in self._tasks.items():
            task.poll()
            seen = [attrs.evolve(each, headers=()) for each in self.produced] if name in HEADLESS else self.produced
            assert by_partition(task.records) == by_partition(seen), name


def _from_rack(sent: Mapping[int, int]) -> bool | None:
    """Has all come from the rack, or none; None for some."""
    at_home, elsewhere = sent.get(LOCAL, 0) > 0, any(count for node, count in sent.items() if node != LOCAL)
    return None if at_home and elsewhere else at_home


@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_all_record_bytes_come_from_the_rack(way: Way, programs: Programs) -> None:
    reading = Reading(way, programs, [[2, 1, 3], [3, 2, 1], [1, 2, 3]], in_sessions=True)

    reading.wait()
    sent = record_bytes_out(way.cluster, reading.topic)
    later = reading.read_more()

    assert _from_rack(sent)
    assert _from_rack(later)
    reading.assert_once_and_in_order()


@pytest.mark.long
def test_killed_broker_of_the_rack_is_read_again_once_it_is_back_in_its_rack(way: Way, programs: Programs) -> None:
    reading = Reading(way, programs)
    reading.wait_until_read_at(home=True)

    way.cluster.kill(LOCAL)
    without = reading.read_more()
    way.cluster.racks[LOCAL] = None
    way.cluster.restart(LOCAL)
    way.operator.wait_in_sync(reading.topic)
    not_of_the_rack = reading.read_more()
    way.cluster.racks[LOCAL] = RACK
    way.cluster.stop(LOCAL)
    way.cluster.restart(LOCAL)
    way.operator.wait_in_sync(reading.topic)
    reading.wait_until_read_at(home=True)

    assert without.keys() == {2, 3}
    assert not_of_the_rack[LOCAL] == 0
    reading.assert_once_and_in_order()


@pytest.mark.long
def test_broker_of_the_rack_that_lags_is_not_read_until_it_is_in_sync_again(way: Way, programs: Programs) -> None:
    reading = Reading(way, programs)
    way.operator.throttle_replication(reading.topic, LOCAL)
    reading.wait_until_read_at(home=True)

    with way.cluster.stalled(LOCAL):
        way.operator.wait_out_of_sync(reading.topic, LOCAL)
        reading.produce(BEHIND)
    reading.wait()
    lagging = reading.read_more()
    still_out = way.operator.in_sync(reading.topic)
    way.operator.release_replication(reading.topic, LOCAL)
    way.operator.wait_in_sync(reading.topic)
    reading.wait_until_read_at(home=True)

    assert LOCAL not in set().union(*still_out.values())
    assert not _from_rack(lagging)
    reading.assert_once_and_in_order()


@pytest.mark.parametrize("way", WAYS, indirect=True)
def test_replicas_that_leave_the_rack_and_come_back_are_followed(way: Way, programs: Programs) -> None:
    reading = Reading(way, programs, counts_all_topics=True)
    reading.wait_until_read_at(home=True)

    way.operator.reassign(reading.topic, WITHOUT_LOCAL)
    away = reading.read_more()
    way.operator.reassign(reading.topic, ELSEWHERE)
    reading.wait_until_read_at(home=True)

    assert not _from_rack(away)
    reading.assert_once_and_in_order()


@pytest.mark.parametrize("way", ["broker"], indirect=True)
def test_readers_use_local_replica_after_leaders_move_between_other_racks(way: Way, programs: Programs) -> None:
    reading = Reading(way, programs)
    reading.wait_until_read_at(home=True)

    for partition, replicas in enumerate(ELSEWHERE):
        way.operator.move_leader(reading.topic, partition, next(node for node in (3, 2) if node != replicas[0]))
        reading.read_more()
    reading.wait_until_read_at(home=True)

    reading.assert_once_and_in_order()
