"""``python -m tests.adversaries [--seconds N] [--figures FILE] [ATTACK...]``: the long form, with real brokers."""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import attrs
import trio

from tests.adversaries.attacked import attacked
from tests.adversaries.attacks import ATTACKS
from tests.adversaries.figures import as_json
from tests.adversaries.memory_cgroup import memory_cgroup
from tests.adversaries.trial import MOST_MEMORY_MIB, Verdict, try_attack
from tests.kafka.cluster import KafkaCluster
from tests.sidefetch import Sidefetch


def main(argv: Sequence[str] | None = None) -> int:
    """0: every bound held. 1: some did not."""
    parser = argparse.ArgumentParser(prog="python -m tests.adversaries", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="the duration of each attack (%(default)g)")
    parser.add_argument("--figures", type=Path, help="write the figures to this file, as JSON")
    parser.add_argument("--python", help="a script that starts the interpreter of another checkout, in its folder")
    parser.add_argument("--cgroup", action="store_true", help="limit the memory by a cgroup, which needs root")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"{', '.join(ATTACKS)}; all without")
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.attacks) - set(ATTACKS):
        parser.error(f"no such attack: {', '.join(sorted(unknown))}")
    if arguments.figures is not None:
        try:
            arguments.figures.touch()
        except OSError as error:
            parser.error(f"--figures: {error}")
    Sidefetch.python = arguments.python or Sidefetch.python
    verdicts: list[Verdict] = []
    with KafkaCluster("4.3.1") as cluster:
        for name in arguments.attacks or ATTACKS:
            with ExitStack() as stage:
                group = stage.enter_context(memory_cgroup(MOST_MEMORY_MIB)) if arguments.cgroup else None
                is_damaged, by = name == "damaged-responses", () if group is None else group.by
                sidefetch, topic, admin = stage.enter_context(attacked(cluster, is_damaged=is_damaged, by=by))
                found = trio.run(partial(try_attack, name, sidefetch, topic, admin, seconds=arguments.seconds))
                if group is not None:
                    found = attrs.evolve(found, cgroup_mib=group.peak_mib, kills=group.kills)
            verdicts.append(found)
            print(json.dumps(found.as_row()), flush=True)
    if arguments.figures is not None:
        arguments.figures.write_text(as_json(verdicts, arguments.seconds), encoding="utf-8")
    return 1 if any(each.problems for each in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
