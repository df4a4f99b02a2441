"""The documentation of the repository, and the tables in it that are generated.

``python -m tests.pages`` rewrites every generated table; ``tests/test_readme.py`` fails while one is out of date.
"""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import attrs

from proxy.cli.options import markdown_table as options_table
from proxy.convert.versions.table import markdown_table as versions_table
from proxy.kube.annotations import markdown_table as annotations_table
from proxy.telemetry.attributes import markdown as attributes_tables
from proxy.telemetry.instruments import markdown_table as metrics_table
from proxy.telemetry.ledger import markdown_tables as ledger_tables
from tests.adversaries.figures import markdown_table as adversaries_table
from tests.kube.charts import values_table

__all__ = ["ROOT", "TABLES", "Table", "anchors", "pages", "section", "text_of"]

ROOT: Final = Path(__file__).parents[1]
_NOT_OURS: Final = {"build", "dist", "node_modules"}
_SHEETS: Final = ROOT / "tests" / "draws"
"""What readers of drawn texts wrote."""


@attrs.frozen
class Table:
    """A generated part of a page, between a comment that contains *mark* and ``<!-- end -->``."""

    page: str
    mark: str
    generate: Callable[[], str]

    def replaced(self, text: str) -> str:
        """Return *text*, the page, with the table generated again. Raises: ValueError: it has no such marks."""
        marked = re.compile(rf"(<!-- {re.escape(self.mark)}[^\n]* -->\n).*?(<!-- end -->)", re.DOTALL)
        result, count = marked.subn(lambda found: f"{found[1]}{self.generate()}{found[2]}", text)
        if count != 1:
            raise ValueError(f"{self.page} has {count} places that are marked: {self.mark}")
        return result


TABLES: Final = (
    Table("proxy/config/OPTIONS.md", "made from proxy/config", options_table),
    Table("proxy/convert/README.md", "made from proxy/convert/versions", versions_table),
    Table("proxy/telemetry/METRICS.md", "made from proxy/telemetry/instruments.py", metrics_table),
    Table("proxy/telemetry/TRACES.md", "made from proxy/telemetry/attributes.py", attributes_tables),
    Table("proxy/telemetry/LEDGER.md", "made from ledger.py", lambda: f"\n{ledger_tables()}\n"),
    Table("helm/README.md", "made from proxy/kube/annotations.py", annotations_table),
    Table("helm/README.md", "made from values.yaml", values_table),
    Table("tests/adversaries/README.md", "made from figures.json", adversaries_table),
)


def pages() -> Iterator[Path]:
    """Yield every Markdown file of the repository, but for what readers of drawn texts wrote."""
    for path in sorted(ROOT.rglob("*.md")):
        parts = path.relative_to(ROOT).parts
        if not (any(part.startswith(".") or part in _NOT_OURS for part in parts) or path.is_relative_to(_SHEETS)):
            yield path


def text_of(page: str) -> str:
    """Return the text of a page, by its path from the root of the repository."""
    return (ROOT / page).read_text(encoding="utf-8")


def section(page: str, title: str) -> str:
    """Return the text below the heading *title*, up to the next heading of the same level or a higher one."""
    text = text_of(page)
    found = re.search(rf"^(#+) {re.escape(title)}\n", text, re.MULTILINE)
    assert found is not None, f"{page} has no section {title}"
    body = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", body, re.MULTILINE)
    return body[: end.start()] if end else body


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading.strip()).lower()
        slug = base = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        number = 0
        while slug in found:
            number += 1
            slug = f"{base}-{number}"
        found.add(slug)
    return found


def main() -> int:
    for table in TABLES:
        path = ROOT / table.page
        path.write_text(table.replaced(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
