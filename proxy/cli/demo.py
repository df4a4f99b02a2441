"""``sidefetch demo``: compare reads with and without Sidefetch in under a minute, on an embedded cluster."""

import argparse
import functools
import os
from typing import Final

from proxy.cli.extras import require_demo_extra
from proxy.cli.options import Commands
from proxy.errors import ConfigError

__all__ = ["add_to"]

_SECONDS_ENV: Final = "DEMO_SECONDS"
_SECONDS: Final = 30.0


def add_to(commands: Commands) -> None:
    """Add the subcommand ``demo`` with its flags to *commands*, the subparsers of argparse.

    It sets ``run`` in the parsed arguments to the function that executes the command and returns the exit code.
    """
    parser = commands.add_parser(
        "demo",
        help="show Sidefetch at work on an embedded cluster",
        description="Read a small cluster with a full-fetch client, first directly and then through Sidefetch, and"
        " show the cost of both. The cluster is embedded unless --kafka is given.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--seconds",
        metavar="N",
        help=f"duration of both reads together, in seconds [default: {_SECONDS:g}; also: {_SECONDS_ENV}]",
    )
    parser.add_argument(
        "--kafka",
        metavar="VERSION",
        choices=["3", "4"],
        help="use real brokers of Kafka 3 or 4; needs Java 17 and Maven",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    seconds = _seconds(arguments.seconds, os.environ.get(_SECONDS_ENV, ""))
    import trio

    with require_demo_extra():
        from proxy.demo.demo import demo

    return trio.run(functools.partial(demo, seconds=seconds, kafka=arguments.kafka)) or 0


def _seconds(flag: str | None, environment: str) -> float:
    text, whence = (flag, "flag --seconds") if flag is not None else (environment, f"environment {_SECONDS_ENV}")
    if not text and flag is None:
        return _SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 1 <= seconds <= 3600:
        raise ConfigError(f"seconds: {text!r} from {whence}; accepted: 1 to 3600")
    return seconds
