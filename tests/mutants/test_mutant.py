"""Reading and judging of mutants, on a tree of three lines."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mutants.mutant import Mutant, judge, run_tests

CODE = "def double(x: int) -> int:\n    return 2 * x\n"
TESTS = """
import pytest
from proxy.code import double


@pytest.mark.parametrize("x", [0, 1])
def test_double(x):
    assert double(x) == 2 * x


def test_zero():
    assert double(0) == 0
"""
MUTANT = """
meaning = "Doubling adds one."
killed_by = [{killers}]

[[change]]
file = "proxy/code.py"
old = '''
    return {old}
'''
new = '''
    return {new}
'''
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for folder in ("proxy", "tests"):
        (root / folder).mkdir(parents=True)
    (root / "proxy" / "code.py").write_text(CODE)
    (root / "tests" / "test_code.py").write_text(TESTS)
    (root / "pyproject.toml").write_text("")
    (tmp_path / "copy").mkdir()
    return root


def mutant(tree: Path, *, killers: Sequence[str] = ("test_double",), old: str = "2 * x", new: str) -> Mutant:
    path = tree.parent / "01-x.toml"
    named = ", ".join(f'"tests/test_code.py::{each}"' for each in killers)
    path.write_text(MUTANT.format(killers=named, old=old, new=new))
    return Mutant.read(path)


def outcome(
    tree: Path, *, killers: Sequence[str] = ("test_double",), old: str = "2 * x", new: str = "2 * x + 1"
) -> tuple[str, str]:
    made = mutant(tree, killers=killers, old=old, new=new)
    verdict = judge(made, tree, tree.parent / "copy", timeout_s=30)
    return verdict.outcome, verdict.detail


def test_a_mutant_that_its_test_notices_is_killed(tree: Path) -> None:
    assert outcome(tree) == ("killed", "")
    assert (tree / "proxy" / "code.py").read_text() == CODE


def test_one_failing_case_of_a_test_is_enough(tree: Path) -> None:
    assert outcome(tree, new="3 * x") == ("killed", "")


def test_a_mutant_that_passes_its_test_survives(tree: Path) -> None:
    assert outcome(tree, killers=["test_zero"], new="3 * x") == (
        "survived",
        "not noticed by tests/test_code.py::test_zero",
    )


def test_every_test_named_must_notice(tree: Path) -> None:
    assert outcome(tree, killers=["test_double", "test_zero"], new="3 * x")[0] == "survived"


def test_mutant_of_lines_that_are_gone_is_stale(tree: Path) -> None:
    found, detail = outcome(tree, old="4 * x")

    assert found == "stale"
    assert "proxy/code.py" in detail


def test_code_that_cannot_be_imported_is_no_mutant(tree: Path) -> None:
    found, detail = outcome(tree, new="2 *")

    assert found == "unfit"
    assert "SyntaxError" in detail


def test_mutant_of_a_test_that_is_gone_is_stale(tree: Path) -> None:
    found, detail = outcome(tree, killers=["test_gone"])

    assert found == "stale"
    assert "test_gone" in detail


def test_a_mutant_that_never_ends_is_noticed(tree: Path) -> None:
    (tree / "tests" / "test_code.py").write_text("import time\ndef test_double():\n    time.sleep(60)\n")
    (tree.parent / "again").mkdir()

    verdict = judge(mutant(tree, new="3 * x"), tree, tree.parent / "again", timeout_s=2)

    assert verdict.outcome == "hung"


@pytest.mark.parametrize(
    "text", ["", "no TOML", 'meaning = "M."\nkilled_by = ["tests/test_a.py::test_b"]\n', 'killed_by = ["a::b"]\n']
)
def test_file_that_lacks_a_field_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "01-x.toml"
    path.write_text(text)

    with pytest.raises(ValueError, match=r"01-x\.toml|Expected"):
        Mutant.read(path)


@pytest.mark.parametrize("count", [0, 2])
def test_change_whose_lines_do_not_occur_once_is_refused(count: int, tree: Path) -> None:
    (tree / "proxy" / "code.py").write_text("    return 2 * x\n" * count)

    assert f"occur {count} times" in mutant(tree, new="3 * x").problem(tree)


def test_run_reports_failed_tests(tree: Path) -> None:
    (tree / "proxy" / "code.py").write_text(CODE.replace("2 * x", "3 * x"))

    run = run_tests(tree, ["tests/test_code.py"], timeout_s=30)

    assert run.exit_code == 1
    assert run.failed == {"tests/test_code.py::test_double[1]"}
    assert run.has_failed("tests/test_code.py::test_double")
    assert not run.has_failed("tests/test_code.py::test_zero")
