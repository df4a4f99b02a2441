"""Run random sequences: ``python -m tests.differential.raw [--kafka VERSION] [--seconds N] [--seed S]``."""

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Collection, Sequence

from tests.differential.raw.run import Outcome, Runner, Stage
from tests.differential.raw.sequence import Sequence as Drawn
from tests.differential.raw.sequence import draw
from tests.differential.raw.shrink import shrink
from tests.differential.raw.stage import staged


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0 if no response differed from a broker's."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential.raw", description=__doc__)
    parser.add_argument("--kafka", default="4.3.1", help="version of the brokers (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long sequences are run (%(default)g)")
    parser.add_argument("--seed", type=int, default=1, help="of the first sequence (%(default)d)")
    parser.add_argument("--replay", type=int, help="run the sequence of this seed only")
    parser.add_argument("--times", type=int, default=1, help="with --replay: how often (%(default)d)")
    parser.add_argument("--direct", action="store_true", help="test the broker itself: the control of the judge")
    parser.add_argument("--tags", action="store_true", help="put unknown tagged fields into the brokers' responses")
    parser.add_argument("--keep-going", action="store_true", help="go on after a sequence that failed")
    parser.add_argument("--shrink", type=float, default=0.0, help="seconds for cutting a sequence that failed")
    parser.add_argument("--ignore", default="", help="kinds of violations to pass over, with commas between")
    parser.add_argument(
        "--option", action="append", default=[], help="more of Sidefetch's command line: --option=--x=y"
    )
    arguments = parser.parse_args(argv)
    ignored = arguments.ignore.split(",")
    kinds: Counter[str] = Counter()
    first: dict[str, tuple[int, int]] = {}
    ran = requests = 0
    with staged(arguments.kafka, direct=arguments.direct, tags=arguments.tags, options=arguments.option) as (
        stage,
        log,
    ):
        deadline = time.monotonic() + arguments.seconds
        seed = arguments.replay if arguments.replay is not None else arguments.seed
        while time.monotonic() < deadline and (arguments.replay is None or ran < arguments.times):
            drawn = draw(seed)
            outcome = run_one(stage, drawn, ignored)
            ran += 1
            requests += outcome.requests
            if outcome.violations:
                print(report(drawn, outcome), flush=True)
                kind = outcome.violations[0].kind
                is_new = kind not in kinds
                for violation in outcome.violations:
                    kinds[violation.kind] += 1
                    first.setdefault(violation.kind, (seed, ran))
                if arguments.shrink and is_new:
                    cut, failed = shrink(drawn, kind, lambda each: run_one(stage, each, ignored), arguments.shrink)
                    print(f"cut to {len(cut.steps)} steps:", *cut.steps, report(cut, failed or outcome), sep="\n  ")
                if not arguments.keep_going:
                    break
            seed += arguments.replay is None
        if kinds:
            print(log()[-3_000:])
    print(f"{ran} sequences, {requests} requests, violations: {dict(kinds) or 'none'}")
    for kind, (where, number) in first.items():
        print(f"  {kind}: first in sequence number {number}, seed {where}")
    return 1 if kinds else 0


def run_one(stage: Stage, drawn: Drawn, ignored: Collection[str] = ()) -> Outcome:
    """Run a sequence; an error of the test itself is raised with its seed."""
    try:
        return Runner(stage, drawn, ignored).run()
    except Exception:
        traceback.print_exc()
        print(f"the generator itself failed in seed {drawn.seed}", flush=True)
        raise


def report(drawn: Drawn, outcome: Outcome) -> str:
    """Return the violations and the last requests and responses."""
    lines = [f"seed {drawn.seed}, step {outcome.steps} of {len(drawn.steps)}:"]
    lines += [f"  VIOLATION {violation}" for violation in outcome.violations]
    lines += [f"  {line}" for line in outcome.history]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
