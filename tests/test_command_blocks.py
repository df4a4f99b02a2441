"""Every block of the pages is run or validated by a test, or has a reason; commands that no other test runs."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio

from proxy.demo.cluster import embedded_cluster
from tests.certificates import Authority
from tests.command_blocks import Block, all_blocks, all_entries, blocks_of, command, entries_of, problems
from tests.commands import started
from tests.pages import ROOT, text_of
from tests.ports import free_port_range

BROKER: Final = "kafka-1:9092"
ADMIN: Final = "127.0.0.1:9080"
"""Addresses in the commands of the pages, which the tests replace."""
METRICS: Final = "proxy/telemetry/METRICS.md"
PAGE: Final = """\
# Page

    make install
    .venv/bin/sidefetch check \\
      --bootstrap-servers kafka-1:9092   # a comment

1. A list:

        make test

   Its text
    goes on.

```toml
# a comment
grace = "20s"
```
"""
BLOCKS: Final = [
    Block("p.md", 3, ("make install", ".venv/bin/sidefetch check --bootstrap-servers kafka-1:9092")),
    Block("p.md", 9, ("make test",)),
    Block("p.md", 15, ("# a comment", 'grace = "20s"')),
]


def test_every_block_of_the_pages_is_run_or_has_a_reason() -> None:
    found = [*problems(all_blocks(), all_entries())]

    assert not found, "\n".join(["change tests/command_blocks.toml:", *found])


def test_blocks_are_indented_or_fenced() -> None:
    assert [*blocks_of("p.md", PAGE)] == BLOCKS


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ("", ["p.md:9: make test: no entry says what runs this block, or why nothing does"]),
        (
            "begins = 'make test'\nnot_run = 'r'\n[['p.md']]\nbegins = 'make demo'\nnot_run = 'r'",
            ["p.md: make demo: the page has no block that begins so"],
        ),
        ("begins = 'make test'", ["p.md: make test: neither run_by nor validated_by nor not_run"]),
        ("begins = 'make test'\nrun_by = ['make nothing']", ["p.md: make test: there is no make nothing"]),
        (
            "begins = 'make test'\nrun_by = ['tests/test_readme.py::test_none']",
            ["p.md: make test: there is no tests/test_readme.py::test_none"],
        ),
        (
            "begins = 'make test'\nnot_run = 'Its form is tests/none.py.'",
            ["p.md: make test: there is no tests/none.py"],
        ),
        (
            "begins = 'make test'\nrun_by = ['make test', 'tests/test_readme.py::test_readme_is_short']",
            [],
        ),
    ],
)
def test_entries_that_do_not_fit_the_pages_are_named(toml: str, expected: list[str]) -> None:
    entries = [*entries_of(f"[['p.md']]\n{toml}")] if toml else []

    assert [*problems(BLOCKS[1:2], entries)] == expected


def test_entry_of_two_blocks_and_second_entry_of_a_block_are_named() -> None:
    blocks = [Block("p.md", 1, ("make install", "make test")), Block("p.md", 5, ("make install", "make lint"))]
    entries = entries_of(
        "[['p.md']]\nbegins = 'make install'\nnot_run = 'r'\n"
        "[['p.md']]\nbegins = \"make install\\nmake lint\"\nnot_run = 'r'\n"
    )

    assert [*problems(blocks, [*entries])] == [
        "p.md: make install: 2 blocks begin so; add the next line to the entry",
        "p.md: make install: another entry is about the same block",
        "p.md: make install: another entry is about the same block",
    ]


def ran(line: str, *, cwd: Path = ROOT, **env: str) -> "subprocess.CompletedProcess[str]":
    """Return the outcome of a command of a page, by the programs of this Python's environment."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith("SIDEFETCH_")} | env
    shell = ["sh", "-c", line.replace(".venv/bin", str(Path(sys.executable).parent))]
    return subprocess.run(shell, capture_output=True, text=True, env=environ, cwd=cwd, check=False, timeout=60)


def without_time(line: str) -> str:
    """Return a line of the log without its time; a line that does not begin with one stays as it is."""
    return re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", "", line)


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl")
async def test_sidefetch_that_runs_as_in_the_readme_is_ready_and_has_metrics() -> None:
    port = free_port_range(12)
    listen, admin = f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}"
    env = {"SIDEFETCH_LISTEN": listen, "SIDEFETCH_BROKER_PORTS": f"{port + 2}-{port + 11}"}
    checks = [command("README.md", "health"), command("README.md", "curl"), command(METRICS, "curl")]
    async with embedded_cluster(brokers=1) as cluster:
        run = command("README.md", "sidefetch run").replace(BROKER, cluster.bootstrap).replace(ADMIN, admin)
        async with started(*run.split()[1:], env=env) as sidefetch:
            await sidefetch.until(f"address={listen}\n")
            async with await trio.open_tcp_stream("127.0.0.1", port):
                outcomes = [
                    await trio.to_thread.run_sync(
                        partial(ran, line.replace(ADMIN, admin), SIDEFETCH_ADMIN_LISTEN=admin)
                    )
                    for line in checks
                ]
            sidefetch.signal(signal.SIGTERM)
            code = await sidefetch.end()

    probe, connections, ready = outcomes
    assert (probe.returncode, probe.stdout) == (0, "yes\n")
    assert "\nsidefetch_client_connections 1.0\n" in connections.stdout
    assert "\nsidefetch_ready 1.0\n" in ready.stdout
    assert code == 0, sidefetch.output
    example = command("proxy/telemetry/LOGS.md", "listening")
    assert without_time(example) != example
    assert without_time(example).replace("127.0.0.1:9092", listen) in map(without_time, sidefetch.lines)


def settings_in(toml: str) -> Iterator[str]:
    """Yield the settings of a configuration file by their names, such as ``upstream.memory``."""
    for name, setting in tomllib.loads(toml).items():
        if isinstance(setting, dict):
            yield from (f"{name}.{each}" for each in setting)
        else:
            yield name


def test_check_prints_settings_of_the_example_file_where_no_broker_is_in_reach(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", text_of("proxy/config/OPTIONS.md"), re.DOTALL)
    example = re.sub(r"kafka-\d:9093", "127.0.0.1:1", example.replace("/secrets", str(tmp_path)))
    (tmp_path / "sidefetch.toml").write_text(example, encoding="utf-8")
    Authority(tmp_path).path.rename(tmp_path / "ca.crt")
    for name in ("username", "password"):
        (tmp_path / name).write_text("alice\n", encoding="utf-8")

    done = ran(command("proxy/config/OPTIONS.md", "--config"), cwd=tmp_path)

    settings, _, reasons = done.stdout.partition("\nNo bootstrap server answers\n")
    assert (done.returncode, done.stderr) == (1, "")
    assert {*settings_in(example)} == set(re.findall(r"  file sidefetch\.toml: (\S+)$", settings, re.MULTILINE))
    assert "  127.0.0.1:1: " in reasons


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no git repository")
def test_draw_of_docstrings_has_60_texts() -> None:
    done = ran(command("tests/README.md", "tests.draws"))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# 60 of ")
    assert re.findall(r"^## (\d+)$", done.stdout, re.MULTILINE) == [str(number + 1) for number in range(60)]
