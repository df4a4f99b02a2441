"""Incremental fetches of a client behind Sidefetch, as a tap and the brokers' own counters show them."""

import itertools
import time
from collections import defaultdict

import pytest

from proxy.config import UpstreamConfig
from tests.clients.conversation import Client
from tests.kafka.admin import Admin, eventually
from tests.kafka.cluster import KafkaCluster
from tests.kafka.metrics import BrokerCounts, broker_counts
from tests.kafka.records import by_partition
from tests.sidefetch import Sidefetch
from tests.tap import SeenFetch

pytestmark = [pytest.mark.kafka, pytest.mark.in_turn]

PARTITIONS = 30
IDLE_BYTES = 250
"""The largest fetch and response, with size prefixes, without new records, however many partitions it covers."""


@pytest.fixture(scope="module", autouse=True)
def nobody_waits() -> None:
    """Wait until fetches of earlier tests no longer wait at the brokers, where they would be counted."""
    time.sleep(UpstreamConfig(()).upstream_max_wait_s)


def by_session(fetches: list[SeenFetch]) -> dict[tuple[int, int], list[SeenFetch]]:
    """The fetches within each session, in order, by (port, session id)."""
    sessions: dict[tuple[int, int], list[SeenFetch]] = defaultdict(list)
    for fetch in fetches:
        if fetch.session_id:
            sessions[fetch.port, fetch.session_id].append(fetch)
    return sessions


def test_the_fetches_of_any_client_reach_the_brokers_as_incremental_ones(
    client: Client, kafka: KafkaCluster, admin: Admin
) -> None:
    topic, produced = admin.filled_topic("incremental", PARTITIONS)
    before = broker_counts(kafka)

    with kafka.tap() as tap:
        # Records may be read ahead by another fetcher, which creates no session for so few.
        options = ("--upstream-max-wait", "0.3s", "--read-ahead", "off")
        with Sidefetch(tap.bootstrap, options=options) as sidefetch:
            reading = client.begin(
                "read",
                sidefetch.bootstrap,
                topic,
                partitions=list(range(PARTITIONS)),
                count=len(produced) + 1,
                wait_ms=100,
                client_id="counted",
            )
            reading.wait_for(len(produced))
            read = len(tap.answered())
            eventually(lambda: len(tap.answered()) >= read + 30, "30 idle fetches")
            idle = tap.answered()[read + 15 :]
            produced += admin.produce_known(
                topic, 1, PARTITIONS, first=len(produced) // PARTITIONS * PARTITIONS + 20
            )
            reading.wait()
            eventually(lambda: _sessions(kafka) == _of_sessions(before), "sessions closed at the brokers")
        fetches = tap.fetches

    assert by_partition(reading.records) == by_partition(produced)
    assert {fetch.client_id for fetch in fetches if fetch.epoch != -1} == {"counted"}
    for broker in kafka.brokers.values():
        there = [fetch for fetch in fetches if fetch.port == broker.tap_port]
        # A client that is behind by more than its limits gets its session once it has caught up.
        from_first = list(itertools.dropwhile(lambda fetch: fetch.epoch != 0, there))
        assert from_first or not there
        assert sum(fetch.session_id == 0 for fetch in from_first) <= 2, "fetches without a session, or to make one"
    for within in by_session(fetches).values():
        *live, last = within
        assert [fetch.epoch for fetch in live] == list(range(1, len(live) + 1))
        assert (last.epoch, last.named) == (-1, 0)
    assert {(fetch.is_incremental, fetch.named, fetch.forgotten) for fetch in idle} == {(True, 0, 0)}
    assert max(fetch.request_bytes + fetch.response_bytes for fetch in idle) <= IDLE_BYTES
    after = broker_counts(kafka)
    for node_id, broker in kafka.brokers.items():
        seen = sum(fetch.port == broker.tap_port for fetch in fetches)
        assert after[node_id].consumer_fetches - before[node_id].consumer_fetches == seen


def _sessions(kafka: KafkaCluster) -> list[int]:
    return _of_sessions(broker_counts(kafka))


def _of_sessions(counts: dict[int, BrokerCounts]) -> list[int]:
    return [each.sessions for each in counts.values()]
