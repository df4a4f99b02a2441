"""``sidefetch report`` as users run it; ``tests/analysis/report/test_truth.py`` checks its figures."""

import csv
import gzip
import io
import json
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.analysis.rows import row

LEDGER, EMPTY = "here", "empty"


def report(folder: Path, *options: str, **env: str) -> "subprocess.CompletedProcess[str]":
    for name in (LEDGER, EMPTY):
        (folder / name).mkdir(exist_ok=True)
    (folder / LEDGER / "rows.jsonl").touch()
    (folder / EMPTY / ".rows.open").touch()
    command = [sys.executable, "-m", "proxy", "report", *options]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=os.environ | env, check=False, timeout=300
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("nowhere", "--out", "x.html"), "LEDGER: nowhere does not exist"),
        ((EMPTY, "--out", "x.html"), "LEDGER: empty has no finished ledger file"),
        ((LEDGER, "--out", "x.pdf"), "out: x.pdf has no known ending"),
        ((LEDGER, "--out", "no/such/x.html"), "out: no/such is no folder"),
        ((LEDGER, "--out", "x.html", "--price", "-1"), "price: -1"),
        ((LEDGER, "--out", "x.html", "--since", "last week"), "since: 'last week' is not a day"),
        ((LEDGER, "--out", "x.html", "--conf", "spark.driver.memory"), "conf: 'spark.driver.memory'"),
    ],
)
def test_invalid_options_are_refused_before_java_is_needed(
    tmp_path: Path, options: tuple[str, ...], expected: str
) -> None:
    done = report(tmp_path, *options, PATH="", JAVA_HOME="")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"sidefetch: {expected}")
    assert "accepted: " in done.stderr


def java_of(folder: Path, version: str) -> str:
    """Create a folder with a fake Java that can only print that version."""
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2021-01-19' >&2\n", encoding="utf-8")
    java.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(("version", "called"), [("1.8.0_292", "8"), ("11.0.2", "11"), ("16-ea", "16")])
def test_old_java_is_refused_with_required_version(tmp_path: Path, version: str, called: str) -> None:
    done = report(tmp_path, LEDGER, "--out", "x.html", JAVA_HOME=java_of(tmp_path, version))

    assert (done.returncode, done.stdout) == (2, "")
    assert f"bin/java is {called}; accepted: Java 17 or newer" in done.stderr


def test_missing_java_is_refused_with_required_version(tmp_path: Path) -> None:
    for env in ({"PATH": "", "JAVA_HOME": ""}, {"JAVA_HOME": str(tmp_path)}):
        done = report(tmp_path, LEDGER, "--out", "x.html", **env)

        assert (done.returncode, done.stdout) == (2, "")
        assert "java does not exist; accepted: Java 17 or newer on the PATH or at JAVA_HOME" in done.stderr


def test_spark_failure_is_reported_in_few_lines(tmp_path: Path) -> None:
    done = report(tmp_path, LEDGER, "--out", "x.html", "--conf", "spark.driver.memory=none")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Spark failed:\n")
    assert len(done.stderr.splitlines()) < 15


DAY_US = 86_400_000_000


def fetches(count: int) -> str:
    rows = (row("fetch", seq=seq, at_us=seq % 3 * DAY_US + random.randrange(DAY_US)) for seq in range(count))
    return "".join(f"{json.dumps(each)}\n" for each in rows)


@pytest.mark.long
def test_a_file_that_is_torn_is_named_and_the_rest_can_be_had(tmp_path: Path) -> None:
    torn = tmp_path / "torn"
    torn.mkdir()
    whole = gzip.compress(fetches(3000).encode())
    (torn / "a.jsonl.gz").write_bytes(whole[: len(whole) // 2])

    done = report(tmp_path, "torn", "--out", "x.json")
    again = report(tmp_path, "torn", "--out", "x.json", "--conf", "spark.sql.files.ignoreCorruptFiles=true")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Spark failed:\n")
    assert "torn/a.jsonl.gz" in done.stderr
    assert "Unexpected end" in done.stderr
    assert "--conf spark.sql.files.ignoreCorruptFiles=true" in done.stderr
    assert (again.returncode, again.stderr) == (0, "")
    assert 100 < json.loads((tmp_path / "x.json").read_text())["about"]["row_count"] < 3000


@pytest.mark.long
@pytest.mark.parametrize("out", ["x.html", "x.zip"])
def test_a_page_or_tables_of_some_days_are_written(tmp_path: Path, out: str) -> None:
    (tmp_path / "led").mkdir()
    (tmp_path / "led" / "a.jsonl").write_text(fetches(30))

    done = report(tmp_path, "led", "--out", out, "--since", "1970-01-02", "--until", "1970-01-02")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("10 rows of 1 sidecar in ")
    if out == "x.html":
        assert (tmp_path / out).read_text().startswith("<!doctype html>")
    else:
        with zipfile.ZipFile(tmp_path / out) as tables:
            tables_of = {
                name: list(csv.reader(io.StringIO(tables.read(name).decode()))) for name in tables.namelist()
            }
        assert all(len(table) >= 1 for table in tables_of.values())
        assert any("10" in line for table in tables_of.values() for line in table)
