"""``sidefetch run``: serve clients until SIGTERM or Ctrl-C."""

import argparse

from proxy.cli.options import Commands, add_flags, settings_of

__all__ = ["add_to"]


def add_to(commands: Commands) -> None:
    """Add the subcommand ``run`` with its flags to *commands*, the subparsers of argparse.

    It sets ``run`` in the parsed arguments to the function that executes the command and returns the exit code.
    """
    parser = commands.add_parser(
        "run",
        help="serve clients until SIGTERM or Ctrl-C",
        description="Serve Kafka clients until SIGTERM or Ctrl-C. Clients connect to --listen as if it were the"
        " cluster. An option comes from its flag, else from the environment, else from the file. SIGHUP reloads the"
        " options: --bypass, --share-reads-except and --log-level take effect at once.",
        usage="sidefetch run [OPTIONS]",
        allow_abbrev=False,
    )
    add_flags(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    import trio

    from proxy.net.app import serve

    trio.run(serve, settings.config, lambda: settings_of(arguments).config)
    return 0
