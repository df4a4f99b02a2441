"""The limits of the harness notice violations."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.errors import MalformedFrame
from tests.fuzz import harness
from tests.fuzz.mutation import Mutator


def target(feed: object) -> harness.Target:
    return harness.Target("it", lambda: [b"seed", b"of it"], feed, (MalformedFrame,))  # type: ignore[arg-type]


def refuse(data: bytes) -> object:
    raise MalformedFrame(f"at {len(data)}")


def test_documented_errors_are_no_find() -> None:
    ran = harness.run(target(refuse), seed=1, inputs=200)

    assert (ran.inputs, ran.refused, ran.outcomes) == (200, 200, 1)


def test_any_other_error_is_a_find_with_its_input() -> None:
    def feed(data: bytes) -> object:
        return data.index(b"e")

    with pytest.raises(harness.Find, match="ValueError") as found:
        harness.run(target(feed), seed=1, inputs=2000)
    assert b"e" not in found.value.data


def test_too_many_executed_lines_for_input_size_are_reported() -> None:
    def feed(data: bytes) -> object:
        count = 0
        for _ in range(len(data) ** 4 * 1000):
            count += 1
        return count

    with pytest.raises(harness.Find, match="lines for"):
        harness.lines_of(target(feed), b"twelve bytes")


def test_endless_loop_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def feed(_data: bytes) -> object:
        while True:
            pass

    monkeypatch.setattr(harness, "_ALARM_S", 0.1)
    with pytest.raises(harness.Find, match="CPU time"):
        harness.run(target(feed), seed=1, inputs=10)


def test_excessive_memory_growth_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bytes] = []

    def feed(_data: bytes) -> object:
        held.append(b"x" * (4 << 20))
        return 0

    monkeypatch.setattr(harness, "_MOST_NEW_BYTES", 64 << 20)
    with pytest.raises(harness.Find, match="took"):
        harness.run(target(feed), seed=1, inputs=100)


def test_the_input_that_ends_a_process_is_left_behind(tmp_path: Path) -> None:
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom tests.fuzz import harness\n"
        "feed = lambda data: os._exit(9) if data == b'deadly' else 0\n"
        "it = harness.Target('it', lambda: [b'good', b'deadly'], feed, ())\n"
        "harness.run(it, seed=1, inputs=9, current=Path(sys.argv[1]))\n"
    )
    current = tmp_path / "current"
    done = subprocess.run([sys.executable, "-c", program, str(current)], cwd=os.getcwd(), check=False)

    assert done.returncode == 9
    assert current.read_bytes()[:10] == (6).to_bytes(4) + b"deadly"


def test_the_same_seed_makes_the_same_inputs() -> None:
    one, other = (Mutator([b"some bytes to begin with"], 5) for _ in range(2))

    assert [one.next() for _ in range(500)] == [other.next() for _ in range(500)]
