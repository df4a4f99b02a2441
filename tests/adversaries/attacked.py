"""A Sidefetch with the memory of the chart's default, before real brokers, to be attacked."""

import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from confluent_kafka.admin import AdminClient

from tests.adversaries.attacks import BACKLOG, TOPIC
from tests.adversaries.damaging import READY
from tests.adversaries.trial import large_topic
from tests.kafka.admin import Admin, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import Record
from tests.ports import free_ports
from tests.sidefetch import Sidefetch

__all__ = ["attacked"]

_BACKLOG_RECORDS: Final = 9_000
_RECORD_BYTES: Final = 10_000


@contextlib.contextmanager
def attacked(
    cluster: KafkaCluster, *, has_backlog: bool = True, is_damaged: bool = False, by: Sequence[str] = ()
) -> Iterator[tuple[Sidefetch, str, str]]:
    """A Sidefetch with the chart's memory before *cluster*, a topic for honest clients, and the admin address.

    *has_backlog*: whether the topic ``BACKLOG`` is filled, which takes some seconds.
    *is_damaged*: whether a relay before the brokers damages responses to adversaries (``damaging``).
    *by*: a command that starts a given command, for instance in a cgroup.
    """
    admin = Admin(cluster)
    topic = unique("honest")
    admin.create_topic(topic, 1)
    admin.create_topic(large_topic(topic), 1)
    if TOPIC not in AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=10).topics:
        for name in (TOPIC, BACKLOG):
            admin.create_topic(name, 3)
        if has_backlog:
            numbers = range(_BACKLOG_RECORDS)
            admin.produce(BACKLOG, [Record(n % 3, n // 3, 1_000, None, bytes(_RECORD_BYTES)) for n in numbers])
    port = f"127.0.0.1:{free_ports(1)[0]}"
    options = ("--memory", "64MiB", "--request-memory", "32MiB", "--admin-listen", port)
    with contextlib.ExitStack() as running:
        bootstrap = running.enter_context(_damaging(cluster)) if is_damaged else cluster.bootstrap
        yield running.enter_context(Sidefetch(bootstrap, options=options, by=by)), topic, port


@contextlib.contextmanager
def _damaging(cluster: KafkaCluster) -> Iterator[str]:
    """Start the relay that damages responses; yield the address to reach *cluster* through it."""
    routes, seed = cluster.tapped, random.randrange(2**31)
    command = [sys.executable, "-m", "tests.adversaries.damaging", str(seed), json.dumps(routes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as relay:
        try:
            assert relay.stdout is not None
            assert relay.stdout.readline().strip() == READY
            yield ",".join(f"127.0.0.1:{port}" for port in routes)
        finally:
            relay.kill()
