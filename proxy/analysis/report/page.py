"""A report as a self-contained HTML page: without scripts, files or network."""

from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files
from typing import Final

from proxy.analysis.report.charts import NARROW_PX, WIDE_PX, draw_chart
from proxy.analysis.report.model import (
    Chart,
    Figure,
    Recommendation,
    Report,
    ReportColumn,
    ReportScope,
    ReportSection,
    ReportTable,
    Value,
)
from proxy.analysis.report.words import in_words, plural

__all__ = ["render_page"]

_ICON: Final = (
    '<rect width="32" height="32" rx="8" fill="#0f766e"/>'
    '<path d="M7 10h9c5 0 4 12 9 12M7 22h6" stroke="#fff" stroke-width="3.2" fill="none" stroke-linecap="round"/>'
)
_NUMBERS: Final = frozenset({"count", "bytes", "us", "usd", "share", "ratio"})


def render_page(report: Report) -> str:
    """Return the report as a complete HTML document, with its styles and charts, and no script or external file."""
    css = (files("proxy.analysis.report") / "page.css").read_text(encoding="utf-8")
    icon = f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'>{_ICON}</svg>".replace('"', "'")
    for symbol, code in {"<": "%3C", ">": "%3E", "#": "%23"}.items():
        icon = icon.replace(symbol, code)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        "<title>Sidefetch: report on the fleet's ledgers</title>\n"
        f'<link rel="icon" href="data:image/svg+xml,{icon}">\n<style>\n{css}</style>\n</head>\n<body>\n'
        f"{''.join(_body(report))}</body>\n</html>\n"
    )


def _body(report: Report) -> Iterator[str]:
    yield '<a class="skip" href="#main">To the numbers</a>\n<div class="page">\n<header>\n'
    yield f'<svg viewBox="0 0 32 32" aria-hidden="true">{_ICON}</svg>\n<div class="name">'
    yield '<h1>Sidefetch <span class="pill">Fleet report</span></h1>\n<p class="about">'
    yield "".join(f"<span>{escape(each)}</span>" for each in _scope(report.about))
    yield '</p></div>\n</header>\n<nav aria-label="Answers"><ul>'
    yield '<li><a href="#next">What to do next</a></li>'
    yield "".join(f'<li><a href="#{each.name}">{escape(each.title)}</a></li>' for each in report.sections)
    yield '</ul></nav>\n<main id="main">\n'
    yield _tiles(report.figures)
    yield _recommendations(report.advice)
    yield from map(_section, report.sections)
    yield "</main>\n<footer>Times are UTC. A kB is 1,000 bytes. The same as numbers: --format json, --format csv."
    yield "</footer>\n</div>\n"


def _scope(about: ReportScope) -> Iterator[str]:
    if about.from_us is not None:
        yield f"{in_words(about.from_us, 'at_us')} to {in_words(about.until_us, 'at_us')}"
    if about.cluster_count:
        more = about.cluster_count - len(about.clusters)
        named = ", ".join(about.clusters) + (f" and {more} more" if more else "")
        yield f"{'cluster' if about.cluster_count == 1 else 'clusters'} {named}"
    yield plural(about.proxy_count, "sidecar process", "sidecar processes")
    yield plural(about.row_count, "row")
    if about.bad_count:
        yield f"{plural(about.bad_count, 'row')} not readable"
    if about.lost_count:
        yield f"{plural(about.lost_count, 'row')} lost by sidecars"
    if about.least_rate < 1:
        yield f"sampled, at least {in_words(about.least_rate, 'share')}: sums are estimates"


def _tiles(figures: Iterable[Figure]) -> str:
    tiles = "".join(
        f'<div class="tile"><dt>{escape(each.title)}</dt>'
        f"<dd>{_number(each)}{_element('small', each.note)}</dd></div>\n"
        for each in figures
    )
    return f'<dl class="tiles">\n{tiles}</dl>\n' if tiles else ""


def _number(figure: Figure) -> str:
    value = "" if figure.value is None else f' data-value="{figure.value}"'
    return f"<b{value}>{escape(in_words(figure.value, figure.unit))}</b>"


def _recommendations(advice: Iterable[Recommendation]) -> str:
    items = "".join(
        f'<li><div><h3>{escape(each.title)}</h3><p class="why">{escape(each.why)}</p></div>'
        f'<p class="brings">{_number(each.brings)}<span>{escape(each.brings.title)}</span></p>'
        f'<p class="basis">{escape(each.basis)}</p></li>\n'
        for each in advice
    )
    order = "What breaks comes first, then what costs money, then what makes clients wait."
    content = (
        f'<p class="note">{order}</p>\n<ol class="advice">\n{items}</ol>\n'
        if items
        else '<p class="empty">Nothing: by these ledgers, all is as it should be.</p>\n'
    )
    title = '<h2 id="next-title">What to do next</h2>'
    return f'<section id="next" aria-labelledby="next-title">\n{title}\n{content}</section>\n'


def _section(section: ReportSection) -> str:
    title = f"{section.name}-title"
    charts = "".join(map(_chart, section.charts))
    return (
        f'<section id="{section.name}" aria-labelledby="{title}">\n<h2 id="{title}">{escape(section.title)}</h2>\n'
        + _element("p", section.answer, "answer")
        + _tiles(section.figures)
        + (f'<div class="charts">\n{charts}</div>\n' if charts else "")
        + "".join(map(_table, section.tables))
        + _element("p", section.honest, "note honest")
        + "</section>\n"
    )


def _element(tag: str, text: str, name: str = "") -> str:
    """Return an element with a text; nothing for an empty text."""
    opened = f'<{tag} class="{name}">' if name else f"<{tag}>"
    return f"{opened}{escape(text)}</{tag}>\n" if text else ""


def _chart(chart: Chart) -> str:
    legend = "".join(f'<li class="{each.tone}">{escape(each.name)}</li>' for each in chart.series)
    is_named = chart.kind != "matrix" and len(chart.series) > 1
    drawings = "".join(
        f'<div class="{name}" role="img" aria-label="{escape(chart.alt_text)}">{draw_chart(chart, width_px)}</div>'
        for name, width_px in (("wide", WIDE_PX), ("narrow", NARROW_PX))
    )
    return (
        f'<div class="chart"><h3>{escape(chart.title)}</h3>'
        + (f'<ul class="legend">{legend}</ul>' if is_named else "")
        + f"{drawings}</div>\n"
    )


def _table(table: ReportTable) -> str:
    if not table.rows:
        return ""
    heads = "".join(
        f'<th role="columnheader" scope="col"{_aligned(column)}>{escape(column.title)}</th>'
        for column in table.columns
    )
    rows = "".join(_row(table, row) for row in table.rows)
    return (
        f'<div class="table"><table role="table" id="{table.name}">\n<caption>{escape(table.title)}</caption>\n'
        f'<thead role="rowgroup"><tr role="row">{heads}</tr></thead>\n'
        f'<tbody role="rowgroup">\n{rows}</tbody></table>{_element("p", table.note, "note")}</div>\n'
    )


def _row(table: ReportTable, row: tuple[Value, ...]) -> str:
    is_rest = table.has_rest and row is table.rows[-1]
    cells = "".join(
        _cell(column, value, index == 0)
        for index, (column, value) in enumerate(zip(table.columns, row, strict=True))
    )
    return f'<tr role="row"{" class=rest" if is_rest else ""}>{cells}</tr>\n'


def _cell(column: ReportColumn, value: Value, is_first: bool) -> str:
    text = escape(in_words(value, column.unit))
    if is_first:
        return f'<th role="rowheader" scope="row"{_aligned(column)}>{text}</th>'
    number = f' data-value="{value}"' if column.unit in _NUMBERS and value is not None else ""
    return f'<td role="cell" data-head="{escape(column.title)}"{_aligned(column)}{number}><span>{text}</span></td>'


def _aligned(column: ReportColumn) -> str:
    return ' class="n"' if column.unit in _NUMBERS else ""
