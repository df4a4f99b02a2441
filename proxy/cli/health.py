"""``sidefetch health``: query a probe of a running Sidefetch, for images without a shell and curl."""

import argparse
import http.client
import os
from typing import Final

from proxy.cli.options import Commands
from proxy.config import Address, option_named
from proxy.errors import ConfigError
from proxy.net.observability.probes import PROBES

__all__ = ["add_to"]

_LISTEN: Final = option_named("admin-listen")
_USUAL_PORT: Final = 9080
_TIMEOUT_S: Final = 5.0
_MOST_BYTES: Final = 1000


def add_to(commands: Commands) -> None:
    """Add the subcommand ``health`` with its flags to *commands*, the subparsers of argparse.

    It sets ``run`` in the parsed arguments to the function that executes the command and returns the exit code.
    """
    parser = commands.add_parser(
        "health",
        help="query a probe of a running Sidefetch",
        description="Query a probe of a running Sidefetch. The exit code is 0 if the probe succeeds, and 1 if it"
        f" fails or does not respond within {_TIMEOUT_S:g} s. Sidefetch must run with --admin-listen.",
        usage="sidefetch health [HOST:PORT] [--probe PATH]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "address",
        metavar="HOST:PORT",
        nargs="?",
        help=f"address of its --admin-listen [default: this host at the port of {_LISTEN.env}, or {_USUAL_PORT}]",
    )
    parser.add_argument("--probe", choices=PROBES, default="/livez", help="path of the probe [default: /livez]")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    address = _address(arguments.address)
    connection = http.client.HTTPConnection(address.host, address.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", arguments.probe)
        answer = connection.getresponse()
        text = answer.read(_MOST_BYTES).decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as wrong:
        print(f"no: {address}: {wrong or type(wrong).__name__}")
        return 1
    finally:
        connection.close()
    print(text if text.isprintable() else repr(text))
    return 0 if answer.status == http.client.OK else 1


def _address(given: str | None) -> Address:
    text = given or os.environ.get(_LISTEN.env) or f"127.0.0.1:{_USUAL_PORT}"
    try:
        return Address.parse(text).here
    except ValueError as wrong:
        whence = "HOST:PORT" if given else f"environment {_LISTEN.env}"
        raise ConfigError(f"{whence}: {wrong}; accepted: such as 127.0.0.1:{_USUAL_PORT}") from None
