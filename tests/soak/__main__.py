"""``python -m tests.soak [--seconds N] [--seed S] [--share-reads MODE] [--report FILE]``: the long form."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.soak.faults import FAULTS
from tests.soak.storm import Act, acts_for, as_json, weather_out


def main(argv: Sequence[str] | None = None) -> int:
    """0: nothing was lost, nothing came twice, nothing differed, and all recovered."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800.0, help="how long faults are made (%(default)g)")
    parser.add_argument("--seed", type=int, default=1, help="of their order and length (%(default)d)")
    parser.add_argument("--share-reads", default="off", help="Sidefetch's option (%(default)s)")
    parser.add_argument("--report", type=Path, help="where the figures go, as JSON")
    parser.add_argument("--faults", help=f"only these, 4 s each, once: {', '.join(FAULTS)}")
    parser.add_argument("--direct", action="store_true", help="without Sidefetch, to compare: new clients only")
    parser.add_argument("--log", type=Path, help="where Sidefetch's log goes")
    arguments = parser.parse_args(argv)
    acts: Iterator[Act]
    if arguments.faults:
        acts = iter([Act(name, 4.0) for name in arguments.faults.split(",")])
    else:
        acts = acts_for(arguments.seconds, arguments.seed)

    report = weather_out(
        acts,
        arguments.seed,
        show_progress=_show_progress,
        watch=not arguments.faults,
        share_reads=arguments.share_reads,
        direct=arguments.direct,
        log=arguments.log,
    )

    figures = as_json(report)
    print(figures)
    if arguments.report is not None:
        arguments.report.write_text(figures, encoding="utf-8")
    return 0 if report.is_good else 1


def _show_progress(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
