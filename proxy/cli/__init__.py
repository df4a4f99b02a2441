"""The command line of Sidefetch: commands, settings, printed output and exit codes.

No other package reads settings from files or the environment, prints, or sets exit codes.

Exit codes: 0: success. 1: failure; the output has the reason. 2: the settings or flags are wrong. 130: Ctrl-C,
except for commands that Ctrl-C ends normally.
"""

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Final

from proxy.cli.conflicts import refuse_proxy_py
from proxy.errors import ConfigError, SparkFailed, leaves
from proxy.version import VERSION

__all__ = ["main"]

COMMANDS: Final = {
    "run": "run",
    "check": "check",
    "health": "health",
    "top": "top",
    "topology": "topology",
    "ledger": "ledger",
    "whatif": "whatif",
    "report": "report",
    "try": "trial",
    "demo": "demo",
    "user": "user",
    "inject": "inject",
    "webhook": "webhook",
    "redirect": "redirect",
}
"""The module of each command. Its function ``add_to`` adds a parser, with ``run`` in the parser's defaults."""


def parser(names: Iterable[str]) -> argparse.ArgumentParser:
    """Return a parser that accepts the commands *names*, keys of ``COMMANDS``; their modules are imported."""
    parser = argparse.ArgumentParser(
        prog="sidefetch",
        description="A Kafka sidecar proxy: clients that fetch every partition every time read a cluster by"
        " incremental fetch sessions.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="version", version=f"sidefetch {VERSION}", help="print the version and exit"
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in names:
        import_module(f"proxy.cli.{COMMANDS[name]}").add_to(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in *argv* (by default, the arguments of the process), and return the exit code.

    Wrong settings, failures of Spark and Ctrl-C become exit codes, with messages on stderr. SystemExit of argparse,
    for ``--help`` and wrong flags, and unexpected exceptions are raised.
    """
    given = sys.argv[1:] if argv is None else argv
    try:
        refuse_proxy_py()
        # Only help and errors need the other commands; their imports would make a health check half as long again.
        arguments = parser([name for name in given[:1] if name in COMMANDS] or COMMANDS).parse_args(given)
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except ConfigError as error:
        return _refuse([error])
    except SparkFailed as wrong:
        print("\n  ".join(["Spark failed:", *wrong.args]), file=sys.stderr)
        return 1
    except BaseExceptionGroup as group:
        return _exit_code(group)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of the output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _refuse(errors: Sequence[BaseException]) -> int:
    for error in errors:
        for problem in error.args:
            print(f"sidefetch: {problem}", file=sys.stderr)
    return 2


def _exit_code(group: BaseExceptionGroup[BaseException]) -> int:
    """Return the exit code for errors that nurseries have wrapped in *group*.

    Raises: BaseExceptionGroup: *group* itself, if it has errors of other types.
    """
    errors = list(leaves(group))
    # A second signal ends the process despite other errors.
    if any(isinstance(error, SystemExit) for error in errors):
        return next((e.code for e in errors if isinstance(e, SystemExit) and isinstance(e.code, int)), 1)
    if all(isinstance(error, KeyboardInterrupt) for error in errors):
        return 130
    if not all(isinstance(error, ConfigError) for error in errors):
        raise group
    return _refuse(errors)
