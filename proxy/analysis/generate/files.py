"""Write generated rows to files, in the format and with the names that sidecars use."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from proxy.telemetry.ledger import Row

__all__ = ["encode_row", "write_files"]

_AGE_US: Final = 3_600_000_000
"""Time span of a file. A sidecar uses five minutes by default; an hour makes fewer files, and nobody waits for
them."""
_encode = json.JSONEncoder(separators=(",", ":")).encode


def encode_row(row: Row) -> str:
    """Return a ledger row as one line of compact JSON, without the line end."""
    return _encode(row)


def write_files(folder: Path, rows: Iterable[Row]) -> int:
    """Write the ledger rows of one process to files of JSON lines in *folder*; return the number of rows.

    *rows* must have the same ``proxy_id`` and be in the order of ``seq``. Each file covers about an hour and is
    named ``PROXY_ID-FIRST-NEXT.jsonl``, as by a sidecar: FIRST is the ``seq`` of its first row, NEXT that of the
    next file. A file gets this name when it is complete.

    Raises: OSError: a file cannot be written.
    """
    count, first, lines, until_us = 0, 0, list[str](), 0
    proxy_id, following = "", 0
    for row in rows:
        if lines and row["at_us"] >= until_us and row["seq"] >= following:
            _write(folder, proxy_id, first, following, lines)
            first, lines = following, []
        if not lines:
            until_us = row["at_us"] + _AGE_US
        proxy_id, following = row["proxy_id"], row["seq"] + 1
        lines.append(encode_row(row))
        count += 1
    if lines:
        _write(folder, proxy_id, first, following, lines)
    return count


def _write(folder: Path, proxy_id: str, first: int, following: int, lines: Iterable[str]) -> None:
    unfinished = folder / f".{proxy_id}-{first:012}.open"
    with unfinished.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
    os.replace(unfinished, folder / f"{proxy_id}-{first:012}-{following:012}.jsonl")
