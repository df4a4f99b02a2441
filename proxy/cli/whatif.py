"""``sidefetch whatif``: replay ledgers by the rules of brokers and of Sidefetch, with other settings."""

import argparse
import csv
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from proxy.cli.extras import require_spark_extra
from proxy.cli.options import Commands
from proxy.cli.printable import printable
from proxy.cli.spark import add_flags, settings_of, spark_at
from proxy.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["add_to"]

_MOST_ROWS: Final = 50
"""Most rows of a printed table; CSV has all rows."""


def add_to(commands: Commands) -> None:
    """Add the subcommand ``whatif`` with its actions and their flags to *commands*, the subparsers of argparse.

    It sets ``run`` in the parsed arguments to the function that executes the command and returns the exit code.
    """
    parser = commands.add_parser("whatif", help="replay ledgers with other settings", allow_abbrev=False)
    actions = parser.add_subparsers(title="questions", metavar="QUESTION", required=True)

    sizing = _action(
        actions, "sizing", _sizing, "the number of session slots that a broker needs for a fleet", ledgers=False
    )
    _number(sizing, "--clients", 100_000, "clients with sidecars")
    _number(sizing, "--partitions", 100_000, "partitions of the cluster")
    _number(sizing, "--brokers", 100, "brokers of the cluster")
    _number(sizing, "--read", None, "partitions that each client reads, chosen at random [default: all]")
    _number(sizing, "--seed", 1, "seed of the random choice")
    _others(sizing)
    _slots(sizing, "[default: some around the number of sessions]")

    slots = _action(
        actions,
        "slots",
        _replay_slots,
        "the sessions that are granted, refused and evicted with other numbers of slots",
    )
    _others(slots)
    _slots(slots, "[default: 1000]")

    racks = _action(
        actions, "racks", _racks, "the bytes between racks with another layout of racks; needs `topology` rows"
    )
    _pairs(racks, "--broker", "NODE=RACK", "the new rack of a broker; may be repeated")
    _pairs(racks, "--reader", "RACK=RACK", "the present and the new rack of readers; may be repeated")
    racks.add_argument(
        "--leaders", action="store_true", help="all clients read from leaders, even if a replica is closer"
    )

    chunks = _action(
        actions, "chunks", _chunks, "the bytes that other conversion chunks would waste, at least and at most"
    )
    _number(chunks, "--kib", [32, 64, 128, 256, 512, 1024], "chunk sizes in KiB", nargs="+")

    upgrade = _action(
        actions, "upgrade", _upgrade, "the cost that ends when clients are upgraded; without flags: all clients"
    )
    upgrade.add_argument(
        "--client-id", metavar="ID", action="append", default=[], help="client id; may be repeated"
    )
    upgrade.add_argument(
        "--software",
        metavar="NAME",
        action="append",
        default=[],
        help="software, as in the ledger; may be repeated",
    )
    upgrade.add_argument("--no-sessions", action="store_true", help="the upgraded clients use no fetch sessions")


def _action(
    actions: Any,
    name: str,
    analyze: "Callable[[SparkSession, argparse.Namespace], DataFrame]",
    what: str,
    *,
    ledgers: bool = True,
) -> argparse.ArgumentParser:
    usage = f"sidefetch whatif {name} {'LEDGER... ' if ledgers else ''}[OPTIONS]"
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=what, description=f"Print {what}. Needs Java 17.", usage=usage, allow_abbrev=False
    )
    if ledgers:
        parser.add_argument("ledgers", metavar="LEDGER", nargs="+", help="folder, file, or URL that Spark can read")
    parser.add_argument("--csv", action="store_true", help="print all rows, as CSV")
    add_flags(parser)
    parser.set_defaults(run=_run, analyze=analyze)
    return parser


def _number(parser: argparse.ArgumentParser, flag: str, default: Any, what: str, **how: Any) -> None:
    help_text = f"{what} [default: {default}]" if isinstance(default, int) else what
    parser.add_argument(flag, metavar="N", type=_parse_count, default=default, help=help_text, **how)


def _parse_count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number")
    return int(text)


def _slots(parser: argparse.ArgumentParser, default: str) -> None:
    what = f"values of max.incremental.fetch.session.cache.slots {default}"
    _number(parser, "--slots", [], what, nargs="+")


def _others(parser: argparse.ArgumentParser) -> None:
    _number(parser, "--followers", 0, "replica fetchers that have a session with each broker")
    _number(parser, "--other-clients", 0, "clients without a sidecar that have a session with each broker")


def _pairs(parser: argparse.ArgumentParser, flag: str, metavar: str, what: str) -> None:
    parser.add_argument(flag, metavar=metavar, action="append", default=[], help=what)


def _run(arguments: argparse.Namespace) -> int:
    from proxy.analysis.report.files import spreadsheet_cell

    settings = settings_of(arguments.conf)
    with spark_at(arguments.master, settings) as spark:
        answer = arguments.analyze(spark, arguments)
        rows = answer.toLocalIterator()
        if arguments.csv:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            writer.writerows([answer.columns, *(map(spreadsheet_cell, row) for row in rows)])
        else:
            _print(answer.columns, rows)
    return 0


def _print(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table for people, with the first ``_MOST_ROWS`` rows."""
    rows = iter(rows)
    lines = [list(columns), *(list(map(_cell, row)) for row in islice(rows, _MOST_ROWS))]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    if next(rows, None) is not None:
        print(f"... and more than these {_MOST_ROWS} rows: --csv prints all")


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.4f}"
        case _:
            return printable(str(value))


def _other_sessions(arguments: argparse.Namespace) -> Any:
    with require_spark_extra():
        from proxy.analysis.whatif.replay import Others

    return Others(followers=arguments.followers, clients=arguments.other_clients)


def _sizing(spark: "SparkSession", arguments: argparse.Namespace) -> "DataFrame":
    from proxy.analysis.whatif.fleet import Fleet
    from proxy.analysis.whatif.sizing import sizing

    if not arguments.clients or not arguments.partitions or not arguments.brokers:
        raise ConfigError("clients, partitions and brokers: one is 0; accepted: 1 or more")
    read = arguments.partitions if arguments.read is None else arguments.read
    if not read:
        raise ConfigError("read: 0; accepted: 1 or more")
    fleet = Fleet(arguments.clients, arguments.partitions, arguments.brokers, read)
    return sizing(spark, fleet, arguments.slots, others=_other_sessions(arguments), seed=arguments.seed)


def _replay_slots(spark: "SparkSession", arguments: argparse.Namespace) -> "DataFrame":
    from proxy.analysis.whatif.slots import slots

    played = slots(_ledger(spark, arguments), arguments.slots or [1000], others=_other_sessions(arguments))
    return played.orderBy("cluster_id", "node", "slots")


def _racks(spark: "SparkSession", arguments: argparse.Namespace) -> "DataFrame":
    from proxy.analysis.whatif.racks import RackLayout, racks

    brokers = _parse_pairs(arguments.broker, "broker", "NODE=RACK, such as 3=b")
    if wrong := [node for node in brokers if not node.isdecimal()]:
        raise ConfigError(f"broker: {wrong[0]!r} is no node id; accepted: NODE=RACK, such as 3=b")
    layout = RackLayout(
        {int(node): rack for node, rack in brokers.items()},
        _parse_pairs(arguments.reader, "reader", "RACK=RACK, such as a=b"),
        closest=not arguments.leaders,
    )
    return racks(_ledger(spark, arguments), layout).orderBy("cluster_id", "reader_rack")


def _chunks(spark: "SparkSession", arguments: argparse.Namespace) -> "DataFrame":
    from proxy.analysis.whatif.chunks import chunks

    sizes = [kib * 1024 for kib in arguments.kib]
    return chunks(_ledger(spark, arguments), sizes).orderBy("cluster_id", "chunk_bytes")


def _upgrade(spark: "SparkSession", arguments: argparse.Namespace) -> "DataFrame":
    from proxy.analysis.whatif.upgrade import upgrade

    upgrades = upgrade(
        _ledger(spark, arguments),
        client_ids=arguments.client_id,
        software=arguments.software,
        keeps_sessions=not arguments.no_sessions,
    )
    return upgrades.sort(upgrades.is_upgraded.desc(), upgrades.converted_bytes.desc(), upgrades.full_fetches.desc())


def _ledger(spark: "SparkSession", arguments: argparse.Namespace) -> Any:
    """Return the rows of the ledgers. Raises: ConfigError: a ledger does not exist."""
    from proxy.analysis.ingest import read

    return read(spark, arguments.ledgers).ledger


def _parse_pairs(given: Sequence[str], flag: str, accepted: str) -> dict[str, str]:
    """Return the pairs of ``KEY=VALUE`` arguments. Raises: ConfigError: an argument has another form."""
    pairs = [each.partition("=") for each in given]
    if wrong := [each for each, (key, _, value) in zip(given, pairs, strict=True) if not key or not value]:
        raise ConfigError(f"{flag}: {wrong[0]!r}; accepted: {accepted}")
    return {key: value for key, _, value in pairs}
