"""``sidefetch user``: print a line for the file of users."""

import argparse
import getpass
import secrets
import sys

from proxy.cli.options import Commands
from proxy.errors import ConfigError
from proxy.sasl.scram import HASHES
from proxy.sasl.users import make_line

__all__ = ["add_to"]

_SALT_BYTES = 16
_ITERATIONS = 8192


def add_to(commands: Commands) -> None:
    """Add the subcommand ``user`` with its flags to *commands*, the subparsers of argparse.

    It sets ``run`` in the parsed arguments to the function that executes the command and returns the exit code.
    """
    parser = commands.add_parser(
        "user",
        help="print a line for --listen-sasl-file",
        description="Read a password, from the terminal or the first line of stdin, and print the line for the user"
        " NAME with that password. The line does not contain the password.",
        usage="sidefetch user NAME [--mechanism MECHANISM]",
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", help="name of the user: sasl.username of clients")
    parser.add_argument(
        "--mechanism",
        choices=list(HASHES),
        default="SCRAM-SHA-256",
        help="mechanism of the line; PLAIN works with either [default: %(default)s]",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise ConfigError("password: it is empty; accepted: one line")
    salt = secrets.token_bytes(_SALT_BYTES)
    try:
        print(make_line(arguments.name, arguments.mechanism, password, salt, _ITERATIONS))
    except ValueError as wrong:
        raise ConfigError(f"NAME: {arguments.name!r}: {wrong}; accepted: another name") from None
    return 0
