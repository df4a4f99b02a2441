"""The clock that the soak sets."""

import subprocess
import sys
import time
from pathlib import Path

from tests.soak.wallclock import WallClock

PROGRAM = """
import datetime, sys, time
for _ in sys.stdin:
    now = datetime.datetime.now(datetime.UTC).timestamp()
    print(time.time(), now, time.monotonic(), flush=True)
"""


def test_a_process_sees_its_wall_clock_jump_and_no_other(tmp_path: Path) -> None:
    clock = WallClock(tmp_path / "offset")
    command = [sys.executable, "-c", PROGRAM]
    seen: list[list[float]] = []
    with subprocess.Popen(
        command, env=clock.env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        for offset_s in (0, 3600, -86400):
            clock.jump(offset_s)
            program.stdin.write("\n")
            program.stdin.flush()
            wall_s, also_s, monotonic_s = map(float, program.stdout.readline().split())
            seen.append([wall_s - time.time() - offset_s, also_s - wall_s, monotonic_s - time.monotonic()])
        program.stdin.close()

    assert all(abs(error_s) < 5 for errors in seen for error_s in errors), seen
