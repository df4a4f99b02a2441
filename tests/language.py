"""Check of the wording of docstrings, comments and pages: ``python -m tests.language``, a part of ``make lint``.

The check is an alarm for habits that made the texts hard to read. It cannot show that a text is clear.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from tests.pages import ROOT, pages

__all__ = ["Docstring", "docstrings", "main", "problems", "rates"]

_SKIPPED: Final = {"node_modules", "build", "dist"}
_LONG_PAGE: Final = 500
"""Words of a page for which rates are computed of the page alone."""
_RATES: Final = {r"told|tells?|telling": 1.0, "what": 4.0}
"""Most occurrences in 1,000 words."""
_FRAGMENTS: Final = 0.03
"""Largest share of docstrings that begin like a part of a sentence."""
_FRAGMENT: Final = re.compile(
    r"(?:Of|To|As|By|From|Until|Since|Where|When|Who|Whom|Whose|What|Which|Why|How|Those|The same|Else|Likewise)\b"
)
_CLASS_VERB: Final = re.compile(
    r"(?:Answers|Asks|Builds|Carries|Checks|Completes|Decides|Does|Follows|Gives|Has|Is|Keeps|Knows|Looks|Makes"
    r"|Passes|Picks|Puts|Reads|Runs|Says|Sends|Takes|Tells|Waits|Walks|Watches|Writes)\b"
)


@attrs.frozen
class Docstring:
    """A docstring, or a string below a field or a constant."""

    path: Path
    line: int
    owner: str
    """"module", "class", "function" or "field"."""
    text: str


def docstrings(path: Path) -> Iterator[Docstring]:
    """Yield the docstrings of the module at *path*, in the order of the syntax tree."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Module():
                owner = "module"
            case ast.ClassDef():
                owner = "class"
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                owner = "function"
            case _:
                continue
        for index, part in enumerate(node.body):
            if (
                isinstance(part, ast.Expr)
                and isinstance(part.value, ast.Constant)
                and isinstance(part.value.value, str)
            ):
                yield Docstring(path, part.lineno, owner if index == 0 else "field", part.value.value)


def problems(texts: Sequence[Docstring]) -> Iterator[str]:
    """Yield a line for each class docstring of *texts* that begins with a verb."""
    for each in texts:
        if each.owner == "class" and _CLASS_VERB.match(each.text):
            first = each.text.splitlines()[0]
            yield f"{each.path.relative_to(ROOT)}:{each.line}: begin a class with a noun phrase: {first}"


def rates(paths: Sequence[Path]) -> dict[str, float]:
    """Return, by the pattern of a word, how often it occurs in 1,000 words of *paths*."""
    counts: Counter[str] = Counter()
    words = 0
    for path in paths:
        text = _text_of(path)
        words += len(re.findall(r"[A-Za-z]+", text))
        for pattern in _RATES:
            counts[pattern] += len(re.findall(rf"\b(?:{pattern})\b", text, re.IGNORECASE))
    return {pattern: 1_000 * counts[pattern] / max(words, 1) for pattern in _RATES}


def main() -> int:
    """Print the problems of all folders and pages; return 1 if there are any."""
    found: list[str] = []
    sources = _sources()
    for name, paths in {**sources, **_pages(), "YAML": [*_files(ROOT, "*.yaml")]}.items():
        for pattern, rate in rates(paths).items():
            if rate >= _RATES[pattern]:
                found.append(f"{name}: {pattern} {rate:.1f} times in 1,000 words, at most {_RATES[pattern]:g}")
    for folder, paths in sources.items():
        texts = [each for path in paths for each in docstrings(path)]
        found.extend(problems(texts))
        share = sum(bool(_FRAGMENT.match(each.text)) for each in texts) / max(len(texts), 1)
        if share > _FRAGMENTS:
            found.append(
                f"{folder}: {share:.1%} of {len(texts)} docstrings begin like fragments, at most {_FRAGMENTS:.0%}"
            )
    print("\n".join(found) or f"the texts of {', '.join(sources)}, the pages and the YAML files pass")
    return 1 if found else 0


def _sources() -> dict[str, list[Path]]:
    """Return the modules by folder: of ``proxy``, each package, and the modules of none."""
    modules: dict[str, list[Path]] = {}
    for path in _files(ROOT, "*.py"):
        top, *inner = path.relative_to(ROOT).parts
        folder = f"{top}/{inner[0]}" if top == "proxy" and len(inner) > 1 else top
        modules.setdefault(folder, []).append(path)
    return modules


def _pages() -> dict[str, list[Path]]:
    """Return each page that is long enough for a rate, and the others together."""
    each: dict[str, list[Path]] = {}
    for path in pages():
        name = str(path.relative_to(ROOT))
        words = len(path.read_text(encoding="utf-8").split())
        each.setdefault(name if words >= _LONG_PAGE else "the short pages", []).append(path)
    return each


def _files(folder: Path, pattern: str) -> Iterator[Path]:
    for path in sorted(folder.rglob(pattern)):
        inner = path.relative_to(folder).parts
        if not _SKIPPED & set(inner) and not inner[0].startswith("."):
            yield path


def _text_of(path: Path) -> str:
    """Return a page, or the comments and texts of a module: strings that have a space."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    parts = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and " " in token.string):
            parts.append(token.string)
    return "\n".join(parts)


if __name__ == "__main__":
    sys.exit(main())
