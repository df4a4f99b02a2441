"""A cluster, topics that stay for a whole run, and Sidefetch in front."""

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tests.differential.raw.run import Stage
from tests.differential.raw.sequence import STATIC
from tests.differential.raw.tags import TagRelay
from tests.differential.raw.truth import Topic, Truth
from tests.kafka.admin import Admin, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.transactions import Transactors, planned
from tests.sidefetch import Sidefetch

__all__ = ["staged"]

_LEADER: Final = 1
_SETTINGS: Final = {"message.max.bytes": 20_000_000}


@contextlib.contextmanager
def staged(
    version: str, *, direct: bool = False, tags: bool = False, options: Sequence[str] = (), seed: int = 1
) -> Iterator[tuple[Stage, Callable[[], str]]]:
    """Start the parts of a run; yield the stage, and a function that returns Sidefetch's log.

    Args:
        direct: Test the broker itself, which is the control.
        tags: Let a relay put unknown tagged fields into the brokers' responses.
        options: More of Sidefetch's command line.
    """
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(KafkaCluster(version, settings=_SETTINGS))
        admin = Admin(cluster)
        leader = cluster.brokers[_LEADER].address
        topics = _fill(cluster, admin, leader, random.Random(seed))
        group = next(name for name in map(unique, ["raw"] * 100) if admin.coordinator(name) == _LEADER)
        bootstrap, peer = cluster.bootstrap, leader
        log: Callable[[], str] = str
        if tags:
            bootstrap = stack.enter_context(TagRelay(cluster.tapped)).bootstrap
            peer = f"{cluster.brokers[_LEADER].host}:{cluster.brokers[_LEADER].tap_port}"
        if not direct:
            sidefetch = stack.enter_context(Sidefetch(bootstrap, options=options))
            peer = f"127.0.0.1:{sidefetch.port_of(_LEADER)}"
            log = sidefetch.log_text
        has_leader_reads = not any(option.startswith("--rack") for option in options)
        yield Stage(admin, leader, peer, topics, group, has_leader_reads, direct), log


def _fill(cluster: KafkaCluster, admin: Admin, leader: str, dice: random.Random) -> dict[str, Topic]:
    names = {kind: unique(f"raw-{kind}") for kind in STATIC}
    for kind, name in names.items():
        assignment = [[_LEADER, 2]] * STATIC[kind]
        admin.create_topic(name, assignment=assignment, config={"max.message.bytes": "20000000"})
    # Leader epochs above 0 on the topics that have records removed.
    for partition in range(STATIC["cut"]):
        for node in (2, _LEADER):
            admin.move_leader(names["cut"], partition, node)
    truth = Truth(leader)
    topics = {kind: truth.topic(name) for kind, name in names.items()}
    for partition in range(STATIC["small"] - 1):
        for _ in range(150):
            _produce(truth, topics["small"], partition, dice, dice.randint(1, 20), dice.choice((10, 100)))
    for partition, (batches, count, size) in enumerate(((60, 16, 1_000), (8, 40, 5_000), (3, 3, 500_000))):
        for _ in range(batches):
            _produce(truth, topics["large"], partition, dice, count, size)
    _produce(truth, topics["large"], 3, dice, 1, 3_000_000)
    _produce(truth, topics["large"], 3, dice, 1, 10)
    for partition in range(STATIC["cut"]):
        for _ in range(60):
            _produce(truth, topics["cut"], partition, dice, dice.randint(1, 9), 100)
        admin.delete_records(names["cut"], partition, 100)
    Transactors(cluster.bootstrap, names["transactions"]).carry_out(planned(80, STATIC["transactions"]))
    truth.close()
    return topics


def _produce(truth: Truth, topic: Topic, partition: int, dice: random.Random, count: int, size: int) -> None:
    values = [dice.randbytes(size // 2) + b"-" * (size - size // 2) for _ in range(count)]
    truth.produce(topic, partition, values, dice.choice((0, 0, 1, 2, 3)))
