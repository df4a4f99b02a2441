"""``sidefetch report``: write a report about the ledgers of a fleet, as a page, JSON or CSV."""

import argparse
import io
import os
import sys
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from proxy.cli.extras import require_spark_extra
from proxy.cli.options import Commands
from proxy.cli.spark import add_flags, settings_of, spark_at
from proxy.errors import ConfigError

__all__ = ["add_to"]

_FORMATS: Final = {".html": "html", ".htm": "html", ".json": "json", ".zip": "csv", "": "csv"}
"""The default format by the ending of ``--out``."""
_PRICE: Final = 0.01


def add_to(commands: Commands) -> None:
    """Add the subcommand ``report`` with its flags to *commands*, the subparsers of argparse.

    It sets ``run`` in the parsed arguments to the function that executes the command and returns the exit code.
    """
    parser = commands.add_parser(
        "report",
        help="write a report about the ledgers of a fleet",
        description="Read ledgers, and write a report: savings, traffic between racks, clients that fail with"
        " Kafka 4, waiting times of clients, and recommendations. Needs Java 17. Exit code 0: written; 1: the"
        " ledgers have no rows, or Spark failed; 2: a flag is wrong.",
        usage="sidefetch report LEDGER... --out FILE [OPTIONS]",
        allow_abbrev=False,
    )
    parser.add_argument("ledgers", metavar="LEDGER", nargs="+", help="folder, file, or URL that Spark can read")
    parser.add_argument(
        "--out", metavar="FILE", required=True, help="output file; for CSV, a folder or a .zip file"
    )
    parser.add_argument(
        "--format", choices=["html", "json", "csv"], help="output format [default: by the ending of --out]"
    )
    parser.add_argument(
        "--price",
        metavar="USD",
        type=float,
        default=_PRICE,
        help="price of a GB that leaves a zone, and again of a GB that enters one [default: %(default)s]",
    )
    parser.add_argument("--since", metavar="DAY", help="first day, in UTC: a date, yesterday, or 7d for a week ago")
    parser.add_argument("--until", metavar="DAY", help="last day; it is included")
    add_flags(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    out = Path(arguments.out)
    kind = arguments.format or _FORMATS.get(out.suffix.lower())
    if kind is None:
        raise ConfigError(
            f"out: {out} has no known ending; accepted: a name that ends in .html or .json, or --format"
        )
    if arguments.price < 0:
        raise ConfigError(f"price: {arguments.price:g}; accepted: 0 or more")
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"out: {out.parent} is no folder; accepted: a file in an existing folder")
    for ledger in arguments.ledgers:
        _check_exists(ledger)
    settings = settings_of(arguments.conf)
    with require_spark_extra():
        from proxy.analysis.answers.zones import Prices
        from proxy.analysis.days import parse_days
        from proxy.analysis.ingest import read
        from proxy.analysis.report.build import report_of
    days = parse_days(arguments.since, arguments.until, datetime.now(UTC).date())
    with spark_at(arguments.master, settings) as spark:
        rows = read(spark, arguments.ledgers, days, kept=True)
        report = report_of(rows, Prices(arguments.price, arguments.price))
    if not report.about.row_count:
        print(f"There are no ledger rows in {', '.join(arguments.ledgers)}", file=sys.stderr)
        return 1
    _write(out, kind, report)
    print(_describe(report, arguments.out))
    return 0


def _check_exists(ledger: str) -> None:
    """Check that a ledger in the local file system exists; Spark checks other file systems.

    Raises: ConfigError: *ledger* does not exist, or the folder has no finished ledger file.
    """
    path = Path(ledger)
    if "://" in ledger or set(ledger) & set("*?[{"):
        return
    if not path.exists():
        raise ConfigError(f"LEDGER: {ledger} does not exist; accepted: a folder of ledger files, or one of them")
    endings = ("*.jsonl", "*.jsonl.gz", "*.jsonl.bz2", "*.parquet")
    if path.is_dir() and not any(True for ending in endings for _ in path.rglob(ending)):
        raise ConfigError(f"LEDGER: {ledger} has no finished ledger file; accepted: a folder with *.jsonl files")


def _describe(report: Any, out: str) -> str:
    from proxy.analysis.report.words import plural

    about = report.about
    bad = f"; {plural(about.bad_count, 'row')} could not be read" if about.bad_count else ""
    return f"{plural(about.row_count, 'row')} of {plural(about.proxy_count, 'sidecar')} in {out}{bad}"


def _write(out: Path, kind: str, report: Any) -> None:
    """Write *report* to *out* in the format *kind*. Raises: ConfigError: a file cannot be written."""
    from proxy.analysis.report.files import as_csv, as_json

    try:
        if kind == "csv" and out.suffix.lower() != ".zip":
            out.mkdir(exist_ok=True)
            for name, text in as_csv(report).items():
                _write_atomically(out / name, text.encode())
        elif kind == "csv":
            _write_atomically(out, _zip_files(as_csv(report)))
        elif kind == "json":
            _write_atomically(out, as_json(report).encode())
        else:
            from proxy.analysis.report.page import render_page

            _write_atomically(out, render_page(report).encode())
    except OSError as wrong:
        raise ConfigError(f"out: {out} cannot be written ({wrong.strerror})") from None


def _zip_files(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


def _write_atomically(path: Path, content: bytes) -> None:
    """Write *content* to *path* completely or not at all."""
    unfinished = path.with_name(f".{path.name}.open")
    unfinished.write_bytes(content)
    os.replace(unfinished, path)
