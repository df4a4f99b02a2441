"""``sidefetch topology``: write the partitions with the racks of their replicas, as rows of the ledger."""

import argparse
import os
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from proxy.cli.options import Commands, add_flags, settings_of
from proxy.config import Config
from proxy.errors import ConfigError

__all__ = ["add_to"]


def add_to(commands: Commands) -> None:
    """Add the subcommand ``topology`` with its flags to *commands*, the subparsers of argparse.

    It sets ``run`` in the parsed arguments to the function that executes the command and returns the exit code.
    """
    parser = commands.add_parser(
        "topology",
        help="write the cluster's partitions and racks as rows of the ledger",
        description="Read the metadata of all topics, and write a row for each partition: its leader, and the racks"
        " of its replicas. Changes nothing. Exit code 0: written; 1: no broker answers; 2: the settings are wrong.",
        usage="sidefetch topology [--out FILE] [OPTIONS]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--out", metavar="FILE", help="output file; it is written completely or not at all [default: stdout]"
    )
    add_flags(parser, ["upstream", "upstream_security"])
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    config = settings_of(arguments).config
    if config.upstream_security.sasl == "client":
        raise ConfigError(
            "upstream-sasl: client, but this command has no client; accepted: a login of Sidefetch's own"
        )
    import trio

    answer = trio.run(_read_metadata, config)
    if isinstance(answer, list):
        print("\n".join(["No bootstrap server answers", *(f"  {line}" for line in answer)]), file=sys.stderr)
        return 1
    lines = _lines(answer)
    if arguments.out is None:
        sys.stdout.buffer.writelines(lines)
    else:
        _write(Path(arguments.out), lines)
        print(f"{len(lines)} partitions of {len(answer.topics)} topics in {arguments.out}")
    return 0


async def _read_metadata(config: Config) -> Any:
    from proxy.cli.probe import read_topics
    from proxy.net.upstream.access import access_of
    from proxy.net.upstream.brokers import dial

    return await read_topics(config.upstream, partial(dial, access=access_of(config.upstream_security)))


def _lines(metadata: Any) -> list[bytes]:
    from proxy.net.observability.ledger import encode_row, process_id
    from proxy.telemetry.rows import topology_rows

    rows = topology_rows(metadata, process_id(), time.time_ns() // 1000)
    return [encode_row(row | {"seq": seq}) for seq, row in enumerate(rows)]


def _write(path: Path, lines: Iterable[bytes]) -> None:
    """Write *lines* to *path* completely or not at all. Raises: ConfigError: the file cannot be written."""
    unfinished = path.with_name(f".{path.name}.open")
    try:
        with unfinished.open("wb") as file:
            file.writelines(lines)
        os.replace(unfinished, path)
    except OSError as wrong:
        raise ConfigError(f"out: {path} cannot be written ({wrong.strerror}); accepted: a file's path") from None
