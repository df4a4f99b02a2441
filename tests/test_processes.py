import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.admin import eventually

STARTER = """\
import sys, time
from pathlib import Path
from tests.processes import Process

with Process(["sleep", "600"], log=Path(sys.argv[1]) / "sleep.log") as child:
    print(child.pid, flush=True)
    time.sleep(600)
"""


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # Killed and not yet reaped by whoever adopted it counts as gone.
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return not state.stdout.startswith("Z") and bool(state.stdout.strip())


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_a_test_run_however_it_ends(tmp_path: Path, end: signal.Signals) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as starter:
        assert starter.stdout is not None
        child = int(starter.stdout.readline())
        assert _runs(child)

        starter.send_signal(end)

    eventually(lambda: not _runs(child), "the child gone", timeout_s=10)
