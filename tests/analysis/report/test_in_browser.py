"""The page in a real browser; pictures of it are left in ``build/report``."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from proxy.analysis.report.page import render_page
from tests.analysis.report.reports import HOSTILE, report
from tests.net.browser import PHONE, WIDE, Browser, browsing, serious_faults
from tests.prerequisites import require

pytestmark = pytest.mark.telemetry

PICTURES = Path(__file__).parents[3] / "build" / "report"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    require("chromium")
    with browsing() as found:
        yield found


async def test_page_is_accessible_at_any_width_in_both_themes_and_loads_nothing(
    browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_page(report()), encoding="utf-8")
    await browser.open(file.as_uri())
    grounds = {}
    for theme in ("light", "dark"):
        for name, size in (("wide", WIDE), ("phone", PHONE)):
            await browser.look(size, theme)
            await browser.picture(PICTURES / f"{name}-{theme}.png")
            assert await browser.script(ACROSS) == 0, name
            assert await browser.script(CLIPPED) == [], name
            assert await serious_faults(browser) == [], (name, theme)
        grounds[theme] = await browser.script(COLOURS)
    names = await browser.script("return [...document.querySelectorAll('tbody th')].map(each => each.textContent)")
    asked = await browser.script("return performance.getEntriesByType('resource').map(each => each.name)")
    complaints = await browser.complaints()

    assert HOSTILE in names
    assert not set(grounds["light"]) & set(grounds["dark"])
    assert [each for each in asked if not each.startswith("data:")] == []
    assert complaints == []


ACROSS = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
CLIPPED = """
return [...document.querySelectorAll('td, th, b, .pill')]
  .filter(each => each.offsetParent && getComputedStyle(each).display != 'inline')
  .filter(each => each.scrollWidth > each.clientWidth + 1)
  .map(each => each.outerHTML.slice(0, 200))
"""
COLOURS = """
const bar = document.querySelector('svg.marks path[fill="var(--own)"]');
return [getComputedStyle(document.body).backgroundColor, getComputedStyle(bar).fill]
"""


async def test_it_prints(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_page(report()), encoding="utf-8")
    await browser.open(file.as_uri())
    printed = await trio.to_thread.run_sync(lambda: browser.chrome.print_page())

    assert len(printed) > 10_000
