"""The frame of the mutants, on a tree of three lines; and that no patch here has gone stale."""

from pathlib import Path

import pytest

from tests.mutants.mutant import Mutant, judge, read_all, run_tests

ROOT = Path(__file__).parents[2]
PATCHES = read_all(Path(__file__).parent)

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
PATCH = """Doubling adds one.

Killed-by: tests/test_code.py::{killer}
--- a/proxy/code.py
+++ b/proxy/code.py
@@ -1,2 +1,2 @@
 def double(x: int) -> int:
-    return {old}
+    return {new}
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


def outcome(
    tree: Path, *, killer: str = "test_double", old: str = "2 * x", new: str = "2 * x + 1"
) -> tuple[str, str]:
    patch = tree.parent / "01-x.patch"
    patch.write_text(PATCH.format(killer=killer, old=old, new=new))
    verdict = judge(Mutant.read(patch), tree, tree.parent / "copy", timeout_s=30)
    return verdict.outcome, verdict.detail


def test_a_mutant_that_its_test_notices_is_killed(tree: Path) -> None:
    assert outcome(tree) == ("killed", "")
    assert (tree / "proxy" / "code.py").read_text() == CODE


def test_one_failing_case_of_a_test_is_enough(tree: Path) -> None:
    assert outcome(tree, new="3 * x") == ("killed", "")


def test_a_mutant_that_passes_its_test_survives(tree: Path) -> None:
    assert outcome(tree, killer="test_zero", new="3 * x") == (
        "survived",
        "not noticed by tests/test_code.py::test_zero",
    )


def test_every_test_named_must_notice(tree: Path) -> None:
    killer = "test_double\nKilled-by: tests/test_code.py::test_zero"

    assert outcome(tree, killer=killer, new="3 * x")[0] == "survived"


def test_a_patch_that_does_not_apply_is_stale(tree: Path) -> None:
    found, detail = outcome(tree, old="4 * x")

    assert found == "stale"
    assert "proxy/code.py" in detail


def test_code_that_cannot_be_imported_is_no_mutant(tree: Path) -> None:
    found, detail = outcome(tree, new="2 *")

    assert found == "unfit"
    assert "SyntaxError" in detail


def test_a_test_that_does_not_exist_proves_nothing(tree: Path) -> None:
    assert outcome(tree, killer="test_gone")[0] == "unfit"


def test_a_mutant_that_never_ends_is_noticed(tree: Path) -> None:
    (tree / "tests" / "test_code.py").write_text("import time\ndef test_double():\n    time.sleep(60)\n")
    (tree.parent / "again").mkdir()
    patch = tree.parent / "01-x.patch"
    patch.write_text(PATCH.format(killer="test_double", old="2 * x", new="3 * x"))

    verdict = judge(Mutant.read(patch), tree, tree.parent / "again", timeout_s=2)

    assert verdict.outcome == "hung"


@pytest.mark.parametrize(
    "text", ["", "Meaning only.\n", "Killed-by: tests/test_a.py::test_b\n--- a/x\n", "M.\n--- a/x\n"]
)
def test_a_patch_that_does_not_say_enough_is_refused(text: str, tmp_path: Path) -> None:
    patch = tmp_path / "01-x.patch"
    patch.write_text(text)

    with pytest.raises(ValueError, match=r"01-x\.patch"):
        Mutant.read(patch)


@pytest.mark.parametrize("mutant", PATCHES, ids=lambda mutant: mutant.name)
def test_no_patch_here_is_stale(mutant: Mutant) -> None:
    assert mutant.check(ROOT) == ""
    for killer in mutant.killers:
        path, _, test = killer.partition("::")
        assert f"def {test.rpartition('::')[2].partition('[')[0]}(" in (ROOT / path).read_text(encoding="utf-8")


def test_a_run_tells_which_tests_failed(tree: Path) -> None:
    (tree / "proxy" / "code.py").write_text(CODE.replace("2 * x", "3 * x"))

    run = run_tests(tree, ["tests/test_code.py"], timeout_s=30)

    assert run.exit_code == 1
    assert run.failed == {"tests/test_code.py::test_double[1]"}
    assert run.has_failed("tests/test_code.py::test_double")
    assert not run.has_failed("tests/test_code.py::test_zero")
