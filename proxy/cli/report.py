"""``sidefetch report``: what the ledgers of a fleet tell, as a page, JSON or CSV."""

import argparse
import io
import os
import sys
import zipfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from proxy.cli.extras import needs_spark_extra
from proxy.cli.options import Commands
from proxy.cli.spark import add_flags, settings_of, spark_at
from proxy.errors import ConfigError

__all__ = ["add_to"]

_FORMATS: Final = {".html": "html", ".htm": "html", ".json": "json", ".zip": "csv", "": "csv"}
"""By how the name of ``--out`` ends."""
_PRICE: Final = 0.01


def add_to(commands: Commands) -> None:
    """Make the command known."""
    parser = commands.add_parser(
        "report",
        help="tell what the ledgers of a fleet say",
        description="Read ledgers, and write a page of what was saved, what crosses racks, what breaks on Kafka 4,"
        " what clients wait for, and what to do next. Needs Java 17. Exit code 0: written; 1: there was nothing to"
        " read, or Spark failed; 2: a flag is wrong.",
        usage="sidefetch report LEDGER... --out FILE [OPTIONS]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "ledgers", metavar="LEDGER", nargs="+", help="folders, files, or addresses that Spark reads"
    )
    parser.add_argument("--out", metavar="FILE", required=True, help="a file; of CSV, a folder or a file.zip")
    parser.add_argument("--format", choices=["html", "json", "csv"], help="[default: as --out is called]")
    parser.add_argument(
        "--price",
        metavar="USD",
        type=float,
        default=_PRICE,
        help="of a GB that leaves a zone, and again of one that comes into one [default: %(default)s]",
    )
    parser.add_argument(
        "--since", metavar="DAY", help="from this day on, in UTC: a date, yesterday, 7d for a week ago"
    )
    parser.add_argument("--until", metavar="DAY", help="up to this day, which is read as well")
    add_flags(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    out = Path(arguments.out)
    kind = arguments.format or _FORMATS.get(out.suffix.lower())
    if kind is None:
        raise ConfigError(f"out: {out} may be anything; accepted: a name that ends in .html or .json, or --format")
    if arguments.price < 0:
        raise ConfigError(f"price: {arguments.price:g}; accepted: 0 or more")
    if not out.absolute().parent.is_dir():
        raise ConfigError(f"out: {out.parent} is no folder; accepted: one that is there")
    for ledger in arguments.ledgers:
        _check_there(ledger)
    settings = settings_of(arguments.conf)
    with needs_spark_extra():
        from proxy.analysis.answers.zones import Prices
        from proxy.analysis.days import parse_days
        from proxy.analysis.ingest import read
        from proxy.analysis.report.build import report_of
    days = parse_days(arguments.since, arguments.until, datetime.now(UTC).date())
    with spark_at(arguments.master, settings) as spark:
        rows = read(spark, arguments.ledgers, days, kept=True)
        report = report_of(rows, Prices(arguments.price, arguments.price))
    if not report.about.row_count:
        print(f"There is no row of a ledger in {', '.join(arguments.ledgers)}", file=sys.stderr)
        return 1
    _write(out, kind, report)
    print(_told(report, arguments.out))
    return 0


def _check_there(ledger: str) -> None:
    """Raises: ConfigError: it is of this machine, and there is nothing. Of other file systems Spark will tell."""
    path = Path(ledger)
    if "://" in ledger or set(ledger) & set("*?[{"):
        return
    if not path.exists():
        raise ConfigError(f"LEDGER: {ledger} is not there; accepted: a folder of ledger files, or one of them")
    endings = ("*.jsonl", "*.jsonl.gz", "*.jsonl.bz2", "*.parquet")
    if path.is_dir() and not any(True for ending in endings for _ in path.rglob(ending)):
        raise ConfigError(f"LEDGER: {ledger} has no finished file of a ledger in it; accepted: one with *.jsonl")


def _told(report: Any, out: str) -> str:
    from proxy.analysis.report.words import plural

    about = report.about
    bad = f"; {plural(about.bad_count, 'row')} could not be read" if about.bad_count else ""
    return f"{plural(about.row_count, 'row')} of {plural(about.proxy_count, 'sidecar')} in {out}{bad}"


def _write(out: Path, kind: str, report: Any) -> None:
    """Raises: ConfigError: it cannot be written."""
    from proxy.analysis.report.files import as_csv, as_json

    try:
        if kind == "csv" and out.suffix.lower() != ".zip":
            out.mkdir(exist_ok=True)
            for name, text in as_csv(report).items():
                _whole(out / name, text.encode())
        elif kind == "csv":
            _whole(out, _zipped(as_csv(report)))
        elif kind == "json":
            _whole(out, as_json(report).encode())
        else:
            from proxy.analysis.report.page import page

            _whole(out, page(report).encode())
    except OSError as wrong:
        raise ConfigError(f"out: {out} cannot be written ({wrong.strerror})") from None


def _zipped(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


def _whole(path: Path, content: bytes) -> None:
    """Write it, or nothing."""
    unfinished = path.with_name(f".{path.name}.open")
    unfinished.write_bytes(content)
    os.replace(unfinished, path)
