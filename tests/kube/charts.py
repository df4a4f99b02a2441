"""The chart: the table of its values in helm/README.md, and its rendered manifests."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from tests.kept import kept
from tests.prerequisites import require

__all__ = ["CHART", "VALUES_FILES", "documents_of", "helm", "loaded", "rendered", "values_table"]

CHART: Final = Path(__file__).parents[2] / "helm"
VALUES_FILES: Final = sorted((CHART / "ci").glob("*.yaml"))
_HELM: Final = "helm.sh/helm/v4/cmd/helm@v4.3.1"
_BUILD_S: Final = 1800.0
_RUN_S: Final = 60.0


def loaded(file: Path) -> Any:
    """Return the contents of a YAML file."""
    return YAML(typ="safe").load(file.read_text(encoding="utf-8"))


def values_table() -> str:
    """Markdown, from the comments and defaults of values.yaml."""
    values = loaded(CHART / "values.yaml")
    rows = ["| value | default | meaning |", "|---|---|---|"]
    for path, comment_text in _commented_values():
        default: Any = values
        for part in path.split("."):
            default = default[part]
        rows.append(f"| `{path}` | `{json.dumps(default)}` | {comment_text} |")
    return "\n".join(rows) + "\n"


def _commented_values() -> Iterator[tuple[str, str]]:
    """Each value that has a comment, and that."""
    inside: list[tuple[int, str]] = []
    comment_text = ""
    for line in (CHART / "values.yaml").read_text(encoding="utf-8").splitlines():
        if comment := re.fullmatch(r" *# -- (.+)", line):
            comment_text = comment[1]
        elif more := re.fullmatch(r" *# (.+)", line):
            comment_text = f"{comment_text} {more[1]}" if comment_text else ""
        elif key := re.match(r"( *)([A-Za-z]+):", line):
            depth = len(key[1])
            inside = [*(each for each in inside if each[0] < depth), (depth, key[2])]
            if comment_text:
                yield ".".join(name for _, name in inside), comment_text
            comment_text = ""


def helm(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Return the output of helm; it is built the first time, which takes minutes."""
    require("go")
    program = kept("helm", [], _build, of=_HELM) / "helm"
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False, timeout=_RUN_S)


def rendered(*arguments: str) -> list[dict[str, Any]]:
    """The documents that the chart comes to, as release ``it`` in the namespace ``place``."""
    done = helm("template", "it", str(CHART), "--namespace", "place", *arguments)
    assert done.returncode == 0, done.stderr
    return documents_of(done.stdout)


def documents_of(text: str) -> list[dict[str, Any]]:
    """All documents of a YAML text that say something."""
    return [each for each in YAML(typ="safe").load_all(text) if each]


def _build(folder: Path) -> None:
    done = subprocess.run(
        ["go", "install", _HELM],
        env={**os.environ, "GOBIN": str(folder), "GOFLAGS": "-modcacherw"},
        capture_output=True,
        text=True,
        check=False,
        timeout=_BUILD_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
