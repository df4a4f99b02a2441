"""Bars."""

import re
from xml.etree import ElementTree

from tests.bench.chart import Panel, svg

PANELS = [
    Panel("a <b>", "MB/s", {"direct": 2000.0, "Sidefetch": 500.0}),
    Panel("none", "B", {"direct": 0.0}),
]


def widths(picture: str) -> list[float]:
    return [float(width) for width in re.findall(r'<rect[^>]* width="([\d.]+)"', picture)]


def test_bars_are_as_long_as_their_values_within_a_panel() -> None:
    direct, ours, nothing = widths(svg(PANELS))

    assert direct == 4 * ours > 0
    assert nothing == 0


def test_it_is_xml_with_every_name_value_and_title() -> None:
    picture = svg(PANELS)

    texts = [element.text for element in ElementTree.fromstring(picture).iter() if element.tag.endswith("text")]
    assert texts == ["a <b>", "direct", "2,000 MB/s", "Sidefetch", "500 MB/s", "none", "direct", "0 B"]
    assert picture.count('class="ours"') == 1


def test_panels_are_below_each_other() -> None:
    heights = [int(y) for y in re.findall(r'class="title" x="\d+" y="(\d+)"', svg(PANELS))]

    assert heights[1] - heights[0] == PANELS[0].height
