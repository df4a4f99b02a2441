"""Randomly drawn texts, to be read with fresh eyes: ``python -m tests.draws docstrings COMMIT``.

A reader writes down the meaning of each text before seeing the code, then compares. The commit's hash is the seed,
so that nobody chooses the texts. The texts are those of the checkout: draw from a clean tree at COMMIT.
"""

import argparse
import ast
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from proxy.cli.options import markdown_table
from tests.pages import ROOT

_FETCH: Final = ROOT / "proxy" / "fetch"
"""The core, whose docstrings are drawn by themselves."""


def main(arguments: list[str]) -> int:
    """Print the drawn texts, numbered."""
    parser = argparse.ArgumentParser(prog="python -m tests.draws", description=__doc__)
    parser.add_argument("kind", choices=sorted(_KINDS))
    parser.add_argument("commit", help="a commit, such as HEAD; its full hash is the seed")
    parser.add_argument("--number", type=int, help="texts to draw: 60 docstrings (docstrings, fetch), else 10")
    given = parser.parse_args(arguments)
    found = subprocess.run(
        ["git", "rev-parse", given.commit], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    number = given.number or (60 if given.kind in ("docstrings", "fetch") else 10)
    texts = sorted(_KINDS[given.kind]())
    print(f"# {number} of {len(texts)} {given.kind}, drawn by {found}")
    for index, text in enumerate(random.Random(f"{given.kind} {found}").sample(texts, number), 1):
        print(f"\n## {index}\n\n{text}")
    return 0


def _docstrings() -> Iterator[str]:
    """Yield each public docstring of a function, method or class outside ``proxy/fetch``."""
    for path in sorted((ROOT / "proxy").rglob("*.py")):
        if not path.is_relative_to(_FETCH):
            yield from _of_module(path)


def _fetch() -> Iterator[str]:
    """Yield each public docstring of ``proxy/fetch``."""
    for path in sorted(_FETCH.rglob("*.py")):
        yield from _of_module(path)


def _of_module(path: Path) -> Iterator[str]:
    """Yield the docstrings of a module, each below the names and texts around it."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    yield from _of_body(module, f"Module {path.relative_to(ROOT)}: {_first_line(module)}")


def _of_body(parent: ast.Module | ast.ClassDef, around: str) -> Iterator[str]:
    for node in parent.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        if text := ast.get_docstring(node):
            yield f"{around}\n\n    {_signature(node)}\n\n{text}"
        if isinstance(node, ast.ClassDef):
            yield from _of_body(node, f"{around}\nClass {node.name}: {_first_line(node)}")


def _first_line(node: ast.Module | ast.ClassDef) -> str:
    return (ast.get_docstring(node) or "(no docstring)").partition("\n")[0]


def _signature(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return f"class {node.name}({bases})"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"def {node.name}({ast.unparse(node.args)}){returns}"


def _readme() -> Iterator[str]:
    """Yield the paragraphs, list items and table rows of the README, below their headings."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```$|^ {4}.*?$|<!--.*?-->", "", text, flags=re.MULTILINE | re.DOTALL)
    for section in re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        head = ""
        for part in re.split(r"\n\s*\n|\n(?=- |\| )", body):
            lines = part.strip().splitlines()
            if len(lines) == 2 and lines[1].startswith("|-"):
                head = part.strip() + "\n"
            elif len(part.split()) >= 8 and not part.startswith("!["):
                yield f"README, {title}:\n\n{head if part.startswith('| ') else ''}{part.strip()}"


def _options() -> Iterator[str]:
    """Yield the rows of the table of options: their texts are those of ``--help``."""
    yield from (row for row in markdown_table().splitlines() if row.startswith("| `"))


def _events() -> Iterator[str]:
    """Yield the entries of the page of log events."""
    text = (ROOT / "proxy" / "telemetry" / "LOGS.md").read_text(encoding="utf-8")
    for entry in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        yield entry.partition("\n## ")[0].strip()


_KINDS: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "docstrings": _docstrings,
    "fetch": _fetch,
    "events": _events,
    "options": _options,
    "readme": _readme,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
