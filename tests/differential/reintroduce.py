"""``python -m tests.differential.reintroduce [NUMBER...]``: break a copy of Sidefetch as it was broken once.

The differential test must find each bug; how long that takes goes into ``reintroduced.json``. A bug is given as
snippets of the code as it is and as it was, so that it survives changes elsewhere in the file.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from tests.kept import CACHE
from tests.mutants.mutant import copy_tree

_ROOT: Final = Path(__file__).parents[2]
_FIGURES: Final = Path(__file__).with_name("reintroduced.json")
_TIMEOUT_S: Final = 1200.0
_RAW: Final = ("tests.differential.raw", "--seconds", "900", "--shrink", "0")
_CLIENTS: Final = ("tests.differential", "--fail-fast", "--no-shrink", "--combinations", "300")
_ERRORS: Final = """        ErrorCode.unknown_topic_or_partition,
        ErrorCode.topic_authorization_failed,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    }
)
\"\"\"They hold"""


@attrs.frozen
class Bug:
    """A bug of the past."""

    meaning: str
    snippets: Sequence[tuple[str, str, str]]
    """Path below ``proxy``, the code as it is, and as it was."""
    command: Sequence[str]
    """Module and arguments of the differential test that must fail."""


BUGS: Final = {
    1: Bug(
        "Consumers that leave partitions out are stuck: held records that do not fit count as lacking.",
        [
            ("fetch/tables.py", "            self._learn_from_held()\n", "            pass\n"),
            ("fetch/reader.py", "if self._tables.are_under_way(lacking):", "if self._lanes.is_under_way:"),
        ],
        [*_CLIENTS, *(f"--client=java-{version}" for version in ("2.0.1", "2.3.1", "3.9.2"))],
    ),
    2: Bug(
        "The records of the first partition are cut by its own limit, and not by the response's.",
        [("fetch/held.py", "limit = min(wanted, left)\n", "limit = min(wanted, left) if replies else wanted\n")],
        _RAW,
    ),
    3: Bug(
        "Requests overtake one that is upgraded to several.",
        [
            (
                "relay/passing.py",
                "                    if is_last:\n                        self._blocked_by = None\n",
                "                    self._blocked_by = None\n",
            )
        ],
        _RAW,
    ),
    4: Bug(
        "Records that are gone, or that may be read no more, are delivered for the patience.",
        [
            ("fetch/reader.py", "_UNWATCHED_S: Final = 1.0\n", "_UNWATCHED_S: Final = 10.0\n"),
            ("relay/client.py", "if key == ApiKey.METADATA:", "if key == ApiKey.METADATA and not frame:"),
            ("fetch/tables.py", _ERRORS, '    }\n)\n"""They hold'),
        ],
        [*_CLIENTS, *(f"--client={name}" for name in ("kafka-python", "java-2.0.1", "java-2.3.1"))],
    ),
    5: Bug(
        "Tagged fields that nobody knows close the connection.",
        [
            (
                "wire/shapes.py",
                "            cursor.edits.append((start, cursor.at, write_tags(kept)))\n",
                '            raise MalformedFrame("an unknown tagged field")\n',
            )
        ],
        [*_RAW, "--tags"],
    ),
    6: Bug(
        "Silence of a broker answers fetches that do not wait.",
        [("fetch/waits.py", "self._is_instant = manner.is_instant\n", "self._is_instant = False\n")],
        _RAW,
    ),
    7: Bug(
        "High watermarks and last stable offsets fall with the replica that is read.",
        [
            ("fetch/sheet.py", "offsets = highest(brought, known)\n", "offsets = brought\n"),
            ("fetch/tables.py", "            if shown_epoch == ask.epoch != UNKNOWN:\n", "            if False:\n"),
        ],
        [*_RAW, "--option=--rack=b"],
    ),
    8: Bug(
        "A partition that is named twice is answered twice.",
        [
            (
                "wire/fetch/repeats.py",
                "        sections = distinct(request_layout(request.version), request.sections)\n",
                "        sections = request.sections\n",
            )
        ],
        _RAW,
    ),
}
"""The bugs, by their numbers in the changelog."""


def main(argv: Sequence[str] | None = None) -> int:
    """0: the differential test has found each."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential.reintroduce", description=__doc__)
    parser.add_argument("numbers", nargs="*", type=int, choices=[*BUGS, []], metavar="NUMBER", help="all without")
    numbers = parser.parse_args(argv).numbers or list(BUGS)
    figures = json.loads(_FIGURES.read_text()) if _FIGURES.exists() else {}
    for number in numbers:
        figures[str(number)] = found = _reintroduce(BUGS[number])
        print(f"{number}: {found}", flush=True)
        _FIGURES.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return 0 if all(figures[str(number)]["found"] for number in numbers) else 1


def _reintroduce(bug: Bug) -> dict[str, object]:
    """Run the differential test on a broken copy."""
    with tempfile.TemporaryDirectory(prefix="sidefetch-reintroduce-") as folder:
        copy = Path(folder)
        copy_tree(_ROOT, copy)
        (copy / ".cache").symlink_to(CACHE)
        for compiled in (_ROOT / "proxy" / "convert").glob("*.so"):
            shutil.copy(compiled, copy / "proxy" / "convert")
        for path, now, then in bug.snippets:
            source = copy / "proxy" / path
            text = source.read_text(encoding="utf-8")
            assert text.count(now) == 1, f"{path} has {text.count(now)} times {now!r}"
            source.write_text(text.replace(now, then), encoding="utf-8")
        began_s = time.monotonic()
        command = [sys.executable, "-m", *bug.command]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
        marks = ("VIOLATION", " find ")
        finds = [line.strip() for line in done.stdout.splitlines() if any(mark in line for mark in marks)]
        # With some bugs Sidefetch does not even start: then the last output is the find.
        finds += [line.strip() for line in f"{done.stdout}{done.stderr}".splitlines() if line.strip()][-1:]
        return {
            "meaning": bug.meaning,
            "command": " ".join(["python", "-m", *bug.command]),
            "found": done.returncode == 1,
            "seconds": round(time.monotonic() - began_s),
            "first": finds[0][:300] if done.returncode else "",
        }


if __name__ == "__main__":
    sys.exit(main())
