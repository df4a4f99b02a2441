"""Bars as SVG, of the standard library alone."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

import attrs

from tests.bench.frame import figure_text

__all__ = ["Panel", "svg"]

_WIDTH: Final = 760
_MARGIN: Final = 16
_NAMES: Final = 110
_VALUES: Final = 110
"""Room beside the longest bar."""
_BAR: Final = 18
_STEP: Final = 26
_TITLE: Final = 30
_STYLE: Final = "text{font:13px sans-serif;fill:#777}.title{font-weight:bold}rect{fill:#a9b4c2}.ours{fill:#2f7d6d}"
_OURS: Final = "Sidefetch"


@attrs.frozen
class Panel:
    """Bars that share a scale, one below the other."""

    title: str
    unit: str
    bars: Mapping[str, float]

    @property
    def height(self) -> int:
        return _TITLE + _STEP * len(self.bars)


def svg(panels: Sequence[Panel]) -> str:
    """A picture of them, one below the other."""
    height = 2 * _MARGIN + sum(panel.height for panel in panels)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
        f"<style>{_STYLE}</style>",
    ]
    top = _MARGIN
    for panel in panels:
        lines += _drawn(panel, top)
        top += panel.height
    return "\n".join([*lines, "</svg>", ""])


def _drawn(panel: Panel, top: int) -> Iterator[str]:
    yield f'<text class="title" x="{_MARGIN}" y="{top + 14}">{escape(panel.title)}</text>'
    longest = max(panel.bars.values()) or 1.0
    room = _WIDTH - 2 * _MARGIN - _NAMES - _VALUES
    left = _MARGIN + _NAMES
    for number, (name, value) in enumerate(panel.bars.items()):
        y = top + _TITLE - 8 + _STEP * number
        width = round(room * value / longest, 1)
        ours = ' class="ours"' if name == _OURS else ""
        yield f'<text x="{_MARGIN}" y="{y + 14}">{escape(name)}</text>'
        yield f'<rect{ours} x="{left}" y="{y}" width="{width}" height="{_BAR}"/>'
        yield f'<text x="{left + width + 6:g}" y="{y + 14}">{figure_text(value)} {escape(panel.unit)}</text>'
