"""The transitions between the phases of client fetches, as LOG_CACHE.md lists them."""

import re
from pathlib import Path
from typing import Final

import proxy.fetch

__all__ = ["ANSWERED", "TRANSITIONS"]

ANSWERED: Final = "answered"
_SKIPPED: Final = "Updating"
"""The phase that fetches of few partitions skip."""
_PAGE: Final = Path(proxy.fetch.__file__).with_name("LOG_CACHE.md")
_NAME: Final = re.compile(rf"`(\w+)`|\b({ANSWERED})\b")


def _listed() -> set[tuple[str, str]]:
    """Return the phases and next phases of the table; a row without a phase continues the one above."""
    table = _PAGE.read_text().split("\n## A client fetch\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")][2:]
    found, phase = set(), ""
    for first, *_, following in rows:
        phase = first.strip("`") if first.startswith("`") else phase
        found |= {(phase, name or answered) for name, answered in _NAME.findall(following)}
    return found


def _with_skips(listed: set[tuple[str, str]]) -> set[tuple[str, str]]:
    before = {phase for phase, following in listed if following == _SKIPPED}
    behind = {following for phase, following in listed if phase == _SKIPPED}
    return listed | {(phase, following) for phase in before for following in behind}


TRANSITIONS: Final = _with_skips(_listed())
"""The permitted pairs of a phase and the next one, or ``ANSWERED``."""
