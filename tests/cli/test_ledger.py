"""``sidefetch ledger generate``: the same arguments make the same files."""

import json
import sys
from pathlib import Path

import pytest

from proxy.cli import main
from proxy.telemetry.ledger import problems


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_the_same_arguments_make_the_same_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--proxies", "3", "--hours", "2", "--seed")
    for folder, seed in (("one", "7"), ("again", "7"), ("other", "8")):
        assert main(["ledger", "generate", "--out", str(tmp_path / folder), *flags, seed]) == 0

    written = files(tmp_path / "one")
    assert written == files(tmp_path / "again")
    assert written != files(tmp_path / "other")
    assert all(name.endswith(".jsonl") for name in written)
    rows = [json.loads(line) for lines in written.values() for line in lines.splitlines()]
    assert not [problem for row in rows for problem in problems(row)]
    assert len({row["proxy_id"] for row in rows}) == 3 + 1  # and the process that wrote the topology
    assert f"{len(rows)} rows of 3 sidecars" in capsys.readouterr().out


def test_it_needs_no_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pyspark", "pandas", "pyarrow", "numpy"):
        monkeypatch.setitem(sys.modules, package, None)
    for name in [name for name in sys.modules if name.startswith("proxy.analysis")]:
        monkeypatch.delitem(sys.modules, name)

    assert main(["ledger", "generate", "--out", str(tmp_path), "--proxies", "1"]) == 0


@pytest.mark.parametrize(("flag", "value"), [("--proxies", "0"), ("--hours", "-1"), ("--brokers", "0")])
def test_no_fleet_is_refused(flag: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "generate", "--out", str(tmp_path), flag, value]) == 2
    assert "accepted: 1 or more" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")

    assert main(["ledger", "generate", "--out", str(tmp_path / "file")]) == 2
    assert "accepted: a folder" in capsys.readouterr().err
