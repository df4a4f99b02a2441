"""Generated rows as the files that sidecars write."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from proxy.telemetry.ledger import Row

__all__ = ["encoded", "write_files"]

_AGE_US: Final = 3_600_000_000
"""How much time a file spans. That is an hour, where a sidecar takes five minutes, since nobody waits for these."""
_encode = json.JSONEncoder(separators=(",", ":")).encode


def encoded(row: Row) -> str:
    """As a line of JSON, without its end."""
    return _encode(row)


def write_files(folder: Path, rows: Iterable[Row]) -> int:
    """Write the *rows* of one ``proxy_id`` into *folder*, by ``seq``; how many.

    Files are called ``PROXY_ID-FIRST-NEXT.jsonl``, as a sidecar calls them, and are there whole or not at all.
    Raises: OSError.
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
        lines.append(encoded(row))
        count += 1
    if lines:
        _write(folder, proxy_id, first, following, lines)
    return count


def _write(folder: Path, proxy_id: str, first: int, following: int, lines: Iterable[str]) -> None:
    unfinished = folder / f".{proxy_id}-{first:012}.open"
    with unfinished.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
    os.replace(unfinished, folder / f"{proxy_id}-{first:012}-{following:012}.jsonl")
