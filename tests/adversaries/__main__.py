"""``python -m tests.adversaries [--seconds N] [--figures FILE] [ATTACK...]``: the long form, with real brokers."""

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import trio
from confluent_kafka.admin import AdminClient

from tests.adversaries.attacks import ATTACKS, BACKLOG, TOPIC
from tests.adversaries.trial import Verdict, try_attack
from tests.kafka.admin import Admin, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import Record
from tests.ports import free_ports
from tests.sidefetch import Sidefetch

_BACKLOG_RECORDS: Final = 9_000
_RECORD_BYTES: Final = 10_000


@contextlib.contextmanager
def _attacked(cluster: KafkaCluster) -> Iterator[tuple[Sidefetch, str, str]]:
    """A Sidefetch with the chart's memory before *cluster*, a topic for honest clients, and the admin address."""
    admin = Admin(cluster)
    topic = unique("honest")
    admin.create_topic(topic, 1)
    if TOPIC not in AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=10).topics:
        for name in (TOPIC, BACKLOG):
            admin.create_topic(name, 3)
        sizes = range(_BACKLOG_RECORDS)
        admin.produce(BACKLOG, [Record(n % 3, n // 3, 1_000, None, bytes(_RECORD_BYTES)) for n in sizes])
    port = f"127.0.0.1:{free_ports(1)[0]}"
    with Sidefetch(
        cluster.bootstrap, options=("--memory", "64MiB", "--request-memory", "32MiB", "--admin-listen", port)
    ) as sidefetch:
        yield sidefetch, topic, port


def main(argv: Sequence[str] | None = None) -> int:
    """0: every bound held. 1: some did not."""
    parser = argparse.ArgumentParser(prog="python -m tests.adversaries", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="the duration of each attack (%(default)g)")
    parser.add_argument("--figures", type=Path, help="write the figures to this file, as JSON")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"{', '.join(ATTACKS)}; all without")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.attacks) - set(ATTACKS):
        parser.error(f"no such attack: {', '.join(sorted(unknown))}")
    verdicts: list[Verdict] = []
    with KafkaCluster("4.3.1") as cluster:
        for name in arguments.attacks or ATTACKS:
            with _attacked(cluster) as (sidefetch, topic, admin):
                found = trio.run(partial(try_attack, name, sidefetch, topic, admin, seconds=arguments.seconds))
            verdicts.append(found)
            print(json.dumps(found.as_row()), flush=True)
    if arguments.figures is not None:
        arguments.figures.write_text(json.dumps([each.as_row() for each in verdicts], indent=1) + "\n")
    return 1 if any(each.problems for each in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
