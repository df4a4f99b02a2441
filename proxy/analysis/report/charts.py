"""Charts as SVG: drawn by Vega in this process, with the fonts and colours of the page's theme."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import altair as alt
import vl_convert

from proxy.analysis.report.model import Chart, Tone, Unit
from proxy.analysis.report.words import in_words

__all__ = ["NARROW_PX", "WIDE_PX", "draw_chart"]

_Drawing = Any
"""An Altair chart; its methods do not declare their types."""

WIDE_PX: Final = 560
NARROW_PX: Final = 330
_HEIGHT_PX: Final = 190
_ROW_PX: Final = 30
_CELL_PX: Final = 44

_TONES: Final[dict[Tone, str]] = {
    "own": "#0f766e",
    "crossed": "#b45309",
    "unknown": "#4f6bb5",
    "client": "#7c8a9a",
    "bad": "#b42318",
}
_INK, _SOFT, _LINE, _CARD = "#15202b", "#55616f", "#dde3ea", "#fffffe"
_VARIABLES: Final = {
    **{colour: f"var(--{tone})" for tone, colour in _TONES.items()},
    _INK: "var(--ink)",
    _SOFT: "var(--soft)",
    _LINE: "var(--line)",
    _CARD: "var(--card)",
}
"""The page's CSS variable for each colour; Vega has no variables."""


def draw_chart(chart: Chart, width_px: int) -> str:
    """Draw *chart* with Vega and return it as an ``svg`` element, *width_px* pixels wide.

    Its colours are CSS variables of the page. It has no accessible name; the page adds the chart's description.
    """
    draw = {"lines": _lines, "stack": _stack, "bars": _bars, "matrix": _matrix}[chart.kind]
    spec = draw(chart, width_px).properties(
        width=width_px, autosize=alt.AutoSizeParams(type="fit", contains="padding"), padding=4
    )
    axis = alt.AxisConfig(labelColor=_SOFT, labelFontSize=12, gridColor=_LINE, domain=False, ticks=False)
    spec = spec.configure(aria=False, background="#ffffff00", view=alt.ViewConfig(stroke=None), axis=axis)
    return _apply_page_colours(vl_convert.vegalite_to_svg(spec.to_dict()))


def _apply_page_colours(svg: str) -> str:
    svg = re.sub(r"#[0-9a-f]{6}\b", lambda found: _VARIABLES.get(found[0], found[0]), svg)
    svg = re.sub(r' (?:role|aria-roledescription)="[^"]*"', "", svg)
    return svg.replace(' font-family="sans-serif"', "")


def _rows(chart: Chart) -> Iterator[dict[str, Any]]:
    for place, series in enumerate(chart.series):
        for index, (label, value) in enumerate(zip(chart.labels, series.values, strict=True)):
            yield {
                "label": label,
                "at": index,
                "series": series.name,
                "place": place,
                "value": value or 0,
                "label_text": in_words(value, chart.unit),
            }


def _data(chart: Chart) -> alt.InlineData:
    return alt.InlineData(values=list(_rows(chart)))


def _colour(chart: Chart) -> alt.Color:
    names = [series.name for series in chart.series]
    colours = [_TONES[series.tone] for series in chart.series]
    return alt.Color("series:N", scale=alt.Scale(domain=names, range=colours), legend=None)


def _amounts(top: float, unit: Unit) -> tuple[alt.Axis, alt.Scale]:
    """Return an axis from 0 to a round number of at least *top*."""
    top = _round_up(top)
    values = [0, top / 2, top]
    words = " : ".join(f"datum.value == {value} ? '{in_words(value, unit)}'" for value in values)
    axis = alt.Axis(values=values, labelExpr=f"{words} : ''", title=None, labelPadding=6)
    return axis, alt.Scale(domain=[0, top], nice=False)


def _round_up(value: float) -> float:
    if value <= 0:
        return 1
    size = 1.0
    while size * 10 <= value:
        size *= 10
    while size > value:
        size /= 10
    return next(each * size for each in (1, 1.2, 1.6, 2, 3, 4, 5, 6, 8, 10) if each * size >= value)


def _over_time(chart: Chart, width_px: int) -> alt.X:
    axis = alt.Axis(title=None, grid=False, labelAngle=0, labelOverlap="greedy", labelSeparation=10, labelPadding=6)
    last = len(chart.labels) - 1
    names = " : ".join(f"datum.value == {index} ? {json.dumps(label)}" for index, label in enumerate(chart.labels))
    axis.values = list(range(0, last + 1, max(1, round(last / (width_px / 90)))))
    axis.labelExpr = f"{names} : ''"
    return alt.X("at:O", axis=axis)


def _lines(chart: Chart, width_px: int) -> _Drawing:
    axis, scale = _amounts(
        max((value or 0 for series in chart.series for value in series.values), default=0), chart.unit
    )
    base = alt.Chart(_data(chart)).encode(
        x=_over_time(chart, width_px),
        y=alt.Y("value:Q", axis=axis, scale=scale, stack=None),
        color=_colour(chart),
        order=alt.Order("place:O"),
    )
    points = base.mark_point(filled=True, size=38, opacity=1) if len(chart.labels) < 20 else base.mark_line()
    return alt.layer(base.mark_area(opacity=0.16), base.mark_line(strokeWidth=2), points).properties(
        height=_HEIGHT_PX
    )


def _stack(chart: Chart, width_px: int) -> _Drawing:
    sums = [sum(values) for values in zip(*([v or 0 for v in s.values] for s in chart.series), strict=True)]
    axis, scale = _amounts(max(sums, default=0), chart.unit)
    return (
        alt.Chart(_data(chart))
        .mark_bar(cornerRadius=1.5, size=min(40, 0.66 * width_px / max(1, len(chart.labels))))
        .encode(
            x=_over_time(chart, width_px),
            y=alt.Y("value:Q", axis=axis, scale=scale),
            color=_colour(chart),
            order=alt.Order("place:O"),
        )
        .properties(height=_HEIGHT_PX)
    )


def _bars(chart: Chart, width_px: int) -> _Drawing:
    """Return a bar for each label, with all series stacked, and their sum."""
    sums = {
        label: sum(series.values[index] or 0 for series in chart.series) for index, label in enumerate(chart.labels)
    }
    top = max(sums.values(), default=0) or 1
    names = alt.Axis(title=None, grid=False, labelLimit=round(width_px * 0.34), labelColor=_INK, labelPadding=8)
    labels = alt.Y("label:N", sort=list(chart.labels), axis=names)
    scale = alt.Scale(domain=[0, top * (1.26 if width_px > NARROW_PX else 1.42)], nice=False)
    bars = (
        alt.Chart(_data(chart))
        .mark_bar(cornerRadius=2, height=13)
        .encode(
            x=alt.X("value:Q", axis=None, scale=scale), y=labels, color=_colour(chart), order=alt.Order("place:O")
        )
    )
    ends = [
        {"label": label, "value": value, "label_text": in_words(value, chart.unit)} for label, value in sums.items()
    ]
    label_text = (
        alt.Chart(alt.InlineData(values=ends))
        .mark_text(align="left", dx=6, fontSize=12, color=_SOFT)
        .encode(x=alt.X("value:Q", scale=scale), y=labels, text="label_text:N")
    )
    return alt.layer(bars, label_text).properties(height=_ROW_PX * max(1, len(chart.labels)))


def _matrix(chart: Chart, width_px: int) -> _Drawing:
    """Return a matrix with a row for each series and a column for each label; the diagonal is neutral."""
    tones = {series.name: _TONES[series.tone] for series in chart.series}
    rows = list(_rows(chart))
    top = max((row["value"] for row in rows), default=0) or 1
    for row in rows:
        row["colour"] = _TONES["own"] if row["label"] == row["series"] else tones[row["series"]]
        row["strength"] = 0.08 + 0.6 * row["value"] / top if row["value"] else 0.03
    axis = alt.Axis(
        title=None, grid=False, labelAngle=0, labelColor=_INK, labelLimit=round(width_px * 0.24), labelPadding=7
    )
    across = axis.copy()
    across.orient, across.labelLimit = "top", round(width_px * 0.78 / max(1, len(chart.labels))) - 6
    shared = _shared_start(chart.labels)
    if width_px <= NARROW_PX and shared:
        across.labelExpr = f"'…' + slice(datum.label, {shared})"
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        x=alt.X("label:N", sort=list(chart.labels), axis=across),
        y=alt.Y("series:N", sort=[series.name for series in chart.series], axis=axis),
    )
    cells = base.mark_rect(cornerRadius=4, stroke=_CARD, strokeWidth=3).encode(
        fill=alt.Fill("colour:N", scale=None), fillOpacity=alt.FillOpacity("strength:Q", scale=None)
    )
    label_text = base.mark_text(fontSize=12, fontWeight=600, color=_INK).encode(text="label_text:N")
    return alt.layer(cells, label_text).properties(height=_CELL_PX * max(1, len(chart.series)))


def _shared_start(names: Sequence[str]) -> int:
    """Return the length of the names' common prefix: of ``eu-central-1a`` and ``eu-central-1b``, 11."""
    first, last = min(names, default=""), max(names, default="")
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
    return first.rfind("-", 0, same) + 1
