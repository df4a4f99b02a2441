"""``sidefetch redirect``, with a stand-in for ``nft``. With the real one: tests/transparent."""

from pathlib import Path

import pytest

from proxy.cli import main
from proxy.kube.redirect import REMOVE, Rules


@pytest.fixture
def nft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a program that keeps its input in ``input``, and ends as ``failure`` says."""
    program = tmp_path / "nft"
    program.write_text(f'#!/bin/sh\n[ "$*" = "-f -" ] || exit 9\ncat > {tmp_path}/input\n. {tmp_path}/failure\n')
    program.chmod(0o755)
    (tmp_path / "failure").write_text("")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_rules_are_put_in_and_taken_out(nft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["redirect", "install", "--ports", "9092", "--uid", "7", "--to", "8"]) == 0
    assert (nft / "input").read_text() == Rules(((9092, 9092),), (), (7,), 8).script()

    assert main(["redirect", "remove"]) == 0
    assert (nft / "input").read_text() == REMOVE
    assert capsys.readouterr() == ("", "")


def test_dry_run_prints_rules_without_running_nft(nft: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["redirect", "install", "--dry-run"]) == 0
    assert capsys.readouterr().out == Rules().script()
    assert main(["redirect", "remove", "--dry-run"]) == 0
    assert capsys.readouterr().out == REMOVE
    assert not (nft / "input").exists()


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("Error: cache initialization failed: Operation not permitted", "NET_ADMIN"),
        ("Error: Could not process rule: No such file or directory", "nft_chain_nat"),
        ("Error: syntax error", ""),
    ],
)
def test_nft_error_is_reported_with_remedy(
    nft: Path, capsys: pytest.CaptureFixture[str], said: str, remedy: str
) -> None:
    (nft / "failure").write_text(f"echo '{said}' >&2; exit 1\n")

    assert main(["redirect", "install"]) == 1
    expected = capsys.readouterr().err
    assert expected.startswith(f"sidefetch: nft: {said}")
    assert remedy in expected


def test_missing_nft_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    assert main(["redirect", "remove"]) == 1
    assert "no nft on the PATH" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--ports", "0"),
        ("--ports", "x"),
        ("--networks", "10.0.0.1/8"),
        ("--uid", "root"),
        ("--to", "1-2"),
        ("--to", ""),
    ],
)
def test_a_wrong_flag_is_named_and_nothing_done(
    nft: Path, capsys: pytest.CaptureFixture[str], flag: str, value: str
) -> None:
    assert main(["redirect", "install", flag, value]) == 2
    assert capsys.readouterr().err.startswith(f"sidefetch: {flag[2:]}: ")
    assert not (nft / "input").exists()
