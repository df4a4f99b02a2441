"""``sidefetch ledger``: generate the ledgers of an imaginary fleet."""

import argparse
from pathlib import Path

from proxy.cli.options import Commands
from proxy.errors import ConfigError

__all__ = ["add_to"]


def add_to(commands: Commands) -> None:
    """Add the subcommand ``ledger`` with its actions and their flags to *commands*, the subparsers of argparse.

    It sets ``run`` in the parsed arguments to the function that executes the command and returns the exit code.
    """
    parser = commands.add_parser("ledger", help="generate ledgers for tests and for planning", allow_abbrev=False)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    generate = actions.add_parser(
        "generate",
        help="write the ledgers of an imaginary fleet",
        description="Write the ledger rows of an imaginary fleet of sidecars, with old and new clients, busy and"
        " idle partitions, days and nights, sessions and their ends, lost rows and duplicates. The same arguments"
        " give the same files. The last line of the output has the number of rows.",
        usage="sidefetch ledger generate --out FOLDER [OPTIONS]",
        allow_abbrev=False,
    )
    generate.add_argument(
        "--out", metavar="FOLDER", required=True, help="folder for the files; it is created if necessary"
    )
    _number(generate, "--proxies", 10, "number of sidecars")
    _number(generate, "--hours", 1, "hours of the ledger, from Monday, 5 January 2026, 0:00 UTC")
    _number(generate, "--seed", 1, "seed of the random numbers; another seed gives another fleet")
    _number(generate, "--clusters", 1, "number of Kafka clusters, which share the sidecars equally")
    _number(generate, "--brokers", 3, "number of brokers of each cluster")
    generate.set_defaults(run=_generate)


def _number(parser: argparse.ArgumentParser, flag: str, default: int, what: str) -> None:
    parser.add_argument(flag, metavar="N", type=int, default=default, help=f"{what} [default: {default}]")


def _generate(arguments: argparse.Namespace) -> int:
    for flag in ("proxies", "hours", "clusters", "brokers"):
        if getattr(arguments, flag) < 1:
            raise ConfigError(f"{flag}: {getattr(arguments, flag)}; accepted: 1 or more")
    from proxy.analysis.generate.cluster import cluster_of
    from proxy.analysis.generate.files import write_files
    from proxy.analysis.generate.mix import FleetMix
    from proxy.analysis.generate.sidecar import sidecar_rows

    mix = FleetMix(clusters=arguments.clusters, brokers=arguments.brokers)
    folder, rows = Path(arguments.out), 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(mix.clusters):
            rows += write_files(folder, cluster_of(mix, arguments.seed, number).topology_rows(mix.start_us))
        for index in range(arguments.proxies):
            rows += write_files(folder, sidecar_rows(mix, arguments.seed, index, arguments.hours))
    except OSError as wrong:
        raise ConfigError(f"out: {folder} cannot be written ({wrong.strerror}); accepted: a folder") from None
    print(f"{rows} rows of {arguments.proxies} sidecars in {folder}")
    return 0
