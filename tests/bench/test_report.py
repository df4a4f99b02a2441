"""The pages show the run that is kept."""

import json

import pytest

from tests.bench.digest import digest, summary
from tests.bench.report import FIGURES, PAGES, PICTURE, picture, with_figures
from tests.bench.runs import case, run_of

RUN = run_of(case("one record a fetch, in order: p50", "ms", {"direct": 0.2}))
MARKED = "before\n<!-- made by tests.bench.report; kept -->\nstale\n<!-- end -->\nafter <!-- end -->\n"


def test_pages_and_picture_show_the_figures_that_are_kept() -> None:
    run = json.loads(FIGURES.read_text(encoding="utf-8"))

    for page, make in PAGES.items():
        text = page.read_text(encoding="utf-8")
        assert text == with_figures(text, make(run)), f"python -m tests.bench.report {FIGURES}"
    assert PICTURE.read_text(encoding="utf-8") == picture(run)


def test_summary_has_a_row_for_each_of_its_cases() -> None:
    run = json.loads(FIGURES.read_text(encoding="utf-8"))

    rows = [line for line in summary(run).splitlines() if line.startswith("| ")]
    assert len(rows) == 12
    other = "HAProxy" if run["haproxy"] else "frames in C"
    assert rows[0] == f"| case | direct | {other} | Kroxylicious | Sidefetch |"


def test_only_text_between_the_marks_is_replaced() -> None:
    once = with_figures(MARKED, digest(RUN))

    assert once.startswith("before\n<!-- made by tests.bench.report; kept -->\n\nMedians of one run")
    assert once.endswith("\n<!-- end -->\nafter <!-- end -->\n")
    assert "stale" not in once
    assert with_figures(once, digest(RUN)) == once


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="0 places"):
        with_figures("", digest(RUN))


def test_picture_shows_only_cases_of_run() -> None:
    assert "one record a fetch, in order: p50" in picture(RUN)
    assert "idle partitions" not in picture(RUN)
