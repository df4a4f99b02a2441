"""The README tells the run that is kept."""

import json

import pytest

from tests.bench.report import FIGURES, PICTURE, README, picture, with_digest
from tests.bench.test_digest import case, run_of

RUN = run_of(case("one record a fetch, in order: p50", "ms", {"direct": 0.2}))
MARKED = "before\n<!-- made by tests.bench.report; kept -->\nstale\n<!-- end -->\nafter <!-- end -->\n"


def test_the_readme_and_the_picture_are_made_from_the_figures_that_are_kept() -> None:
    run = json.loads(FIGURES.read_text(encoding="utf-8"))
    readme = README.read_text(encoding="utf-8")

    assert readme == with_digest(readme, run), f"python -m tests.bench.report {FIGURES.name}"
    assert PICTURE.read_text(encoding="utf-8") == picture(run)


def test_only_what_is_between_the_marks_is_made_anew() -> None:
    once = with_digest(MARKED, RUN)

    assert once.startswith("before\n<!-- made by tests.bench.report; kept -->\n\nMedians of one run")
    assert once.endswith("\n<!-- end -->\nafter <!-- end -->\n")
    assert "stale" not in once
    assert with_digest(once, RUN) == once


def test_a_readme_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="0 places"):
        with_digest("", RUN)


def test_what_is_drawn_is_what_the_run_has() -> None:
    assert "one record a fetch, in order: p50" in picture(RUN)
    assert "idle partitions" not in picture(RUN)
