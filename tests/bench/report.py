"""``python -m tests.bench.report bench-TIME.json``: publish a run.

The run is kept as ``figures.json`` and drawn as ``figures.svg``. Its tables are written between the marks in
``RESULTS.md``, and the most important ones in the README.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.bench.chart import Panel, svg
from tests.bench.digest import Run, digest, summary
from tests.pages import Table

__all__ = ["FIGURES", "PAGES", "PICTURE", "picture", "with_figures"]

_HERE: Final = Path(__file__).parent
FIGURES: Final = _HERE / "figures.json"
PICTURE: Final = _HERE / "figures.svg"
PAGES: Final = {_HERE / "RESULTS.md": digest, _HERE.parents[1] / "README.md": summary}
"""The pages with figures of a run, and the functions that make them."""
_DRAWN: Final = {
    r"reading 1 KiB records, (\d+ clients?): speed": "{0}, records of 1 KiB",
    r"one record a fetch, (in order|out of order): p50": "one record a fetch, {0}: p50",
    r"long poll idle, (1,000|10,000) partitions: bytes at the broker, both ways": (
        "a consumer of {0} idle partitions: bytes at the broker"
    ),
    r"long poll idle, (10,000) partitions: CPU of the broker": (
        "a consumer of {0} idle partitions: CPU of the broker"
    ),
}
"""The cases whose bars are drawn, and their titles."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.report", description=__doc__)
    parser.add_argument("run", type=Path, metavar="FILE", help="what a run has written")
    text = parser.parse_args(argv).run.read_text(encoding="utf-8")
    run = json.loads(text)
    pages = {page: with_figures(page.read_text(encoding="utf-8"), make(run)) for page, make in PAGES.items()}
    FIGURES.write_text(text, encoding="utf-8")
    PICTURE.write_text(picture(run), encoding="utf-8")
    for page, text in pages.items():
        page.write_text(text, encoding="utf-8")
    return 0


def with_figures(page: str, figures: str) -> str:
    """Return *page* with *figures* between the marks. Raises: ValueError: it has not exactly one place for them."""
    return Table("the page", "made by tests.bench.report", lambda: f"\n{figures}\n").replaced(page)


def picture(run: Run) -> str:
    return svg(list(_panels(run)))


def _panels(run: Run) -> Iterator[Panel]:
    for pattern, title in _DRAWN.items():
        for case in run["cases"]:
            if found := re.fullmatch(pattern, case["case"]):
                bars = {way: each["median"] for way, each in case["ways"].items()}
                yield Panel(title.format(*found.groups()), case["unit"], bars)


if __name__ == "__main__":
    sys.exit(main())
