"""The page as text; in a browser it is looked at in ``test_in_browser``."""

import re
from html.parser import HTMLParser
from pathlib import Path

import attrs

from proxy.analysis.report.model import Recommendation
from proxy.analysis.report.page import render_page
from tests.analysis.report.reports import HOSTILE, report

ROOT = Path(__file__).parents[3]


class Elements(HTMLParser):
    """Tags that are open, and all attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.addresses: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in {"meta", "link"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes.update(name for name, _ in attrs)
        self.addresses.update(value or "" for name, value in attrs if name in {"href", "src", "xlink:href"})


def test_it_is_one_file_without_a_script_and_names_of_clients_are_but_text() -> None:
    text = render_page(report())
    elements = Elements(text)

    assert elements.open == []
    assert not elements.names & {"script", "img", "iframe", "object", "use", "image"}
    assert not [name for name in elements.attributes if name.startswith("on")]
    assert HOSTILE not in text
    assert [each for each in elements.addresses if not each.startswith(("#", "data:"))] == []
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert "@import" not in text


def test_each_number_is_there_in_words_and_exactly() -> None:
    text = render_page(report())

    assert '<b data-value="4810000000000.0">4.81 TB</b>' in text
    assert '<b data-value="412.5">$412</b>' in text
    assert "<b>–</b><small>no rack is known</small>" in text
    assert 'data-value="-400000000000.0"><span>−400 GB</span>' in text


def test_page_describes_its_source_data() -> None:
    text = render_page(report())

    assert "2024-10-04 00:00 to 2024-10-18 00:00" in text
    assert "and 2 more" in text
    assert "3 rows not readable" in text
    assert "120 rows lost by sidecars" in text
    assert "sums are estimates" in text


def test_page_without_advice_reports_nothing_to_do() -> None:
    assert "Nothing: by these ledgers" in render_page(attrs.evolve(report(), advice=()))
    assert "Nothing: by these ledgers" not in render_page(report())


def test_advice_is_in_order() -> None:
    it = report()
    titles = [advice.title for advice in it.advice]

    assert isinstance(it.advice[0], Recommendation)
    assert re.findall(r"<h3>(Upgrade|Move)", render_page(it)) == [title.split()[0] for title in titles]


def test_its_colours_are_those_of_the_status_page() -> None:
    css = (ROOT / "proxy/analysis/report/page.css").read_text(encoding="utf-8")
    status = (ROOT / "proxy/net/observability/page.html").read_text(encoding="utf-8")
    colours = re.findall(r"--[a-z-]+: #[0-9a-f]{6}", css)

    assert len(colours) > 20
    assert re.findall(r"--[a-z-]+: #[0-9a-f]{6}", status) == colours


def test_its_charts_have_the_colours_of_the_theme() -> None:
    drawings = re.findall(r"<svg [^>]*class=\"marks\".*?</svg>", render_page(report()), re.DOTALL)

    assert len(drawings) == 2 * 5
    for drawing in drawings:
        assert "var(--" in drawing
        assert set(re.findall(r'"#[0-9a-f]{6,8}"', drawing)) <= {'"#ffffff00"'}
