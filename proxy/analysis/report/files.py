"""The report in machine-readable form: as JSON, and as CSV with one file for each table."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs

from proxy.analysis.report.model import Report, ReportTable, Value

__all__ = ["as_csv", "as_json", "spreadsheet_cell"]

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def as_json(report: Report) -> str:
    """Return the whole report as JSON; each row of a table is an object with the columns' names as keys."""

    content = attrs.asdict(report)
    for section, section_content in zip(report.sections, content["sections"], strict=True):
        section_content["tables"] = [_as_object(table) for table in section.tables]
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def as_csv(report: Report) -> dict[str, str]:
    """Return the report as CSV texts by file name: one file for each table, ``figures.csv`` and ``advice.csv``.

    A file is named after its table. Texts of sections, their figures and charts are left out. Texts are those of
    ``spreadsheet_cell``.
    """
    figures = ((each.title, each.value, each.unit, each.note) for each in report.figures)
    advice = (
        (each.title, each.why, each.brings.value, each.brings.unit, each.brings.title, each.basis)
        for each in report.advice
    )
    files = {
        "figures.csv": _csv(("title", "value", "unit", "note"), figures),
        "advice.csv": _csv(("title", "why", "brings", "unit", "of", "basis"), advice),
    }
    for section in report.sections:
        for table in section.tables:
            files[f"{table.name}.csv"] = _csv([column.name for column in table.columns], table.rows)
    return files


def _as_object(table: ReportTable) -> dict[str, Any]:
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    units = {column.name: column.unit for column in table.columns}
    return {"name": table.name, "title": table.title, "note": table.note, "units": units, "rows": rows}


def _csv(head: Sequence[str], rows: Iterable[Sequence[Value]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([spreadsheet_cell(value) for value in row] for row in rows)
    return text.getvalue()


def spreadsheet_cell(value: Any) -> Any:
    """Return *value* for a cell of a CSV file.

    A text that a spreadsheet would treat as a formula, such as a client id that begins with ``=``, gets an
    apostrophe in front.
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
