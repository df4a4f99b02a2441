"""The blocks of the Markdown pages, and ``tests/command_blocks.toml``: what runs each, or why nothing does.

A block is indented by four spaces or fenced: commands, or an example of a file, of output or of a query.
"""

import ast
import re
import textwrap
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import attrs

from tests.pages import ROOT, pages, text_of

__all__ = ["Block", "Entry", "all_blocks", "all_entries", "blocks_of", "command", "entries_of", "problems"]

_DATA: Final = ROOT / "tests" / "command_blocks.toml"
_CHANGELOG: Final = ROOT / "CHANGELOG.md"
_TEST: Final = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?")
_RUN: Final = re.compile(r"make ([a-z-]+)")


@attrs.frozen
class Block:
    """A block of a page, without indentation and comments; a command that is continued on the next line is one."""

    page: str
    number: int
    """The number of its first line in the page."""
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.number}: {self.lines[0]}"


@attrs.frozen
class Entry:
    """The part of the data file about one block."""

    page: str
    begins: str
    """The first line or lines of the block, as many as distinguish it from others of the page."""
    run_by: Sequence[str] = ()
    """Tests (``tests/FILE.py::NAME``) and ``make`` targets that run the commands, or the essential part of them."""
    validated_by: Sequence[str] = ()
    """Tests that compare an example with the program."""
    not_run: str = ""
    """Why nothing runs or validates the block, or its other lines."""

    def __str__(self) -> str:
        return f"{self.page}: {self.begins.splitlines()[0]}"

    def is_of(self, block: Block) -> bool:
        first = tuple(self.begins.splitlines())
        return self.page == block.page and block.lines[: len(first)] == first


def all_blocks() -> list[Block]:
    """Return the blocks of all pages but the changelog."""
    return [
        block
        for page in pages()
        if page != _CHANGELOG
        for block in blocks_of(page.relative_to(ROOT).as_posix(), page.read_text(encoding="utf-8"))
    ]


def blocks_of(page: str, text: str) -> Iterator[Block]:
    """Yield the blocks of *text*, the text of *page*; a block ends at an empty line unless it is fenced."""
    fenced = r"^ *```.*\n(?P<fenced>(?:.*\n)*?) *```$"
    indented = r"(?:\A|(?<=\n\n))(?P<indented>(?: {4}.*\n)+)"
    for found in re.finditer(f"{fenced}|{indented}", text + "\n", re.MULTILINE):
        kind = found.lastgroup or ""
        body = re.sub(r" *\\\n *", " ", textwrap.dedent(re.sub(r" {2,}# .*", "", found[kind])))
        yield Block(page, text.count("\n", 0, found.start(kind)) + 1, tuple(body.splitlines()))


def command(page: str, contains: str) -> str:
    """Return the only line of the blocks of *page* that contains this text."""
    lines = [line for block in blocks_of(page, text_of(page)) for line in block.lines if contains in line]
    assert len(lines) == 1, f"{page} has {len(lines)} commands with: {contains}"
    return lines[0]


def all_entries() -> list[Entry]:
    """Return the entries of the data file, in its order."""
    return [*entries_of(_DATA.read_text(encoding="utf-8"))]


def entries_of(toml: str) -> Iterator[Entry]:
    """Yield the entries of *toml*, a table of arrays by page. Raises: TypeError: one has an unknown field."""
    for page, rows in tomllib.loads(toml).items():
        for row in rows:
            yield Entry(page, **row)


def problems(blocks: Sequence[Block], entries: Sequence[Entry]) -> Iterator[str]:
    """Yield a line for each block without an entry, entry without a block, and entry that does not hold."""
    for block in blocks:
        if not any(entry.is_of(block) for entry in entries):
            yield f"{block}: no entry says what runs this block, or why nothing does"
    for entry in entries:
        matching = [block for block in blocks if entry.is_of(block)]
        if not matching:
            yield f"{entry}: the page has no block that begins so"
        if len(matching) > 1:
            yield f"{entry}: {len(matching)} blocks begin so; add the next line to the entry"
        if any(
            entry.is_of(block) and other.is_of(block) for block in blocks for other in entries if other is not entry
        ):
            yield f"{entry}: another entry is about the same block"
        yield from (f"{entry}: {problem}" for problem in _unfounded(entry))


def _unfounded(entry: Entry) -> Iterator[str]:
    """Yield each part of *entry* that names something that does not exist."""
    if not (entry.run_by or entry.validated_by or entry.not_run):
        yield "neither run_by nor validated_by nor not_run"
    for named in (*entry.run_by, *entry.validated_by):
        if not _exists(named):
            yield f"there is no {named}"
    for test in _TEST.finditer(entry.not_run):
        if not _exists(test[0]):
            yield f"there is no {test[0]}"


def _exists(named: str) -> bool:
    """Return whether *named*, a file of tests, a test or a ``make`` target, exists."""
    if target := _RUN.fullmatch(named):
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        return re.search(rf"^{target[1]}:", makefile, re.MULTILINE) is not None
    test = _TEST.fullmatch(named)
    if test is None or not (ROOT / test[1]).is_file():
        return False
    return test[2] is None or test[2] in _functions(ROOT / test[1])


@cache
def _functions(file: Path) -> frozenset[str]:
    """Return the names of the functions at the top of *file*."""
    module = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in module.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
