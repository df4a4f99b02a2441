"""``python -m tests.bench.report bench-TIME.json``: make that run the README's.

It is kept as ``figures.json``, drawn as ``figures.svg``, and told between the marks in the README.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.bench.chart import Panel, svg
from tests.bench.digest import Run, digest

__all__ = ["FIGURES", "PICTURE", "README", "picture", "with_digest"]

_HERE: Final = Path(__file__).parent
FIGURES: Final = _HERE / "figures.json"
PICTURE: Final = _HERE / "figures.svg"
README: Final = _HERE.parents[1] / "README.md"
_MARKED: Final = re.compile(r"(<!-- made by tests\.bench\.report; [^\n]* -->\n).*?(<!-- end -->)", re.DOTALL)
_DRAWN: Final = {
    r"reading 1 KiB records, (\d+ clients?): speed": "{0}, records of 1 KiB",
    r"one record a fetch, (in order|out of order): p50": "one record a fetch, {0}: p50",
    r"patience idle, (1,000|10,000) partitions: bytes at the broker, both ways": (
        "a consumer of {0} idle partitions: bytes at the broker"
    ),
    r"patience idle, (10,000) partitions: CPU of the broker": (
        "a consumer of {0} idle partitions: CPU of the broker"
    ),
}
"""The cases whose bars are drawn, and what stands above them."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.report", description=__doc__)
    parser.add_argument("run", type=Path, metavar="FILE", help="what a run has written")
    text = parser.parse_args(argv).run.read_text(encoding="utf-8")
    run = json.loads(text)
    readme = with_digest(README.read_text(encoding="utf-8"), run)
    FIGURES.write_text(text, encoding="utf-8")
    PICTURE.write_text(picture(run), encoding="utf-8")
    README.write_text(readme, encoding="utf-8")
    return 0


def with_digest(readme: str, run: Run) -> str:
    """The README with that run between the marks."""
    told, count = _MARKED.subn(lambda found: f"{found[1]}\n{digest(run)}\n{found[2]}", readme)
    if count != 1:
        raise ValueError(f"the README has {count} places for figures")
    return told


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
