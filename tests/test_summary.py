from pathlib import Path

import pytest

from tests.summary import Skip, Summary, main, read_allowed, read_results

RESULTS = """\
<testsuites><testsuite>
  <testcase classname="tests.test_a" name="test_one"/>
  <testcase classname="tests.test_a" name="test_two"><failure message="no">why</failure></testcase>
  <testcase classname="tests.test_a" name="test_two"><error message="teardown">why</error></testcase>
  <testcase classname="tests.test_b" name="test_three"><skipped message="no Rust here">where</skipped></testcase>
</testsuite></testsuites>
"""


def test_counts_every_test_once() -> None:
    assert read_results(RESULTS) == Summary(1, 1, (Skip("tests.test_b::test_three", "no Rust here"),))


@pytest.mark.parametrize(("allowed", "refused"), [("no Rust.*", 0), ("no", 1), ("# no Rust here", 1), ("", 1)])
def test_a_reason_is_allowed_only_as_a_whole(allowed: str, refused: int) -> None:
    assert len(read_results(RESULTS).refused(read_allowed(allowed))) == refused


@pytest.mark.parametrize(
    ("cases", "allowed", "exit_code"),
    [
        ('<testcase classname="a" name="b"/>', "", 0),
        (
            '<testcase classname="a" name="b"/><testcase classname="a" name="c"><skipped message="x"/></testcase>',
            "",
            1,
        ),
        (
            '<testcase classname="a" name="b"/><testcase classname="a" name="c"><skipped message="x"/></testcase>',
            "x",
            0,
        ),
        ('<testcase classname="a" name="b"><failure/></testcase>', "", 1),
        ("", "", 1),
    ],
    ids=["all passed", "skip refused", "skip allowed", "failed", "nothing ran"],
)
def test_the_run_fails_on_failures_on_refused_skips_and_on_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cases: str, allowed: str, exit_code: int
) -> None:
    (tmp_path / "results.xml").write_text(f"<testsuite>{cases}</testsuite>")
    (tmp_path / "allowed.txt").write_text(allowed)

    ended = main(tmp_path / "results.xml", tmp_path / "allowed.txt")

    assert ended == exit_code
    assert capsys.readouterr().out.splitlines()[-1].endswith(" skipped")
