"""``sidefetch try``: compare the cost of direct reads and of reads through Sidefetch, for a topic of the user."""

import argparse
import functools
from typing import Final

from proxy.cli.extras import require_demo_extra
from proxy.cli.options import Commands, add_flags, settings_of
from proxy.errors import ConfigError

__all__ = ["add_to"]

_SECONDS: Final = 30.0


def add_to(commands: Commands) -> None:
    """Add the subcommand ``try`` with its flags to *commands*, the subparsers of argparse.

    It sets ``run`` in the parsed arguments to the function that executes the command and returns the exit code.
    """
    parser = commands.add_parser(
        "try",
        help="read a topic of yours directly and through Sidefetch, and compare the cost",
        description="Read a topic with a full-fetch client, directly and through Sidefetch, and show the cost of"
        " both. It only reads, from the end of the topic, without a consumer group.",
        usage="sidefetch try --topic NAME [OPTIONS]",
        allow_abbrev=False,
    )
    parser.add_argument("--topic", required=True, metavar="NAME", help="the topic to read")
    parser.add_argument(
        "--seconds",
        type=float,
        default=_SECONDS,
        metavar="N",
        help=f"duration of both reads together, in seconds [default: {_SECONDS:g}]",
    )
    add_flags(parser, ["upstream", "upstream_security", "routing"])
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if not 1 <= arguments.seconds <= 3600:
        raise ConfigError(f"seconds: {arguments.seconds:g} from flag --seconds; accepted: 1 to 3600")
    settings = settings_of(arguments)
    if settings.config.upstream_security.sasl == "client":
        raise ConfigError(
            "upstream-sasl: client, but this command has no client; accepted: a login of Sidefetch's own"
        )
    import trio

    with require_demo_extra():
        from proxy.demo.trial import trial

    read = functools.partial(trial, settings.config, topic=arguments.topic, seconds=arguments.seconds)
    return trio.run(read) or 0
