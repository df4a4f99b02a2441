import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kafka.admin import eventually
from tests.processes import has_connection

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


def test_a_listener_is_no_connection_and_a_connected_socket_is_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, subprocess.Popen(["sleep", "60"]) as other:
        assert not has_connection(other.pid)
        before = has_connection(os.getpid())
        with socket.create_connection(listener.getsockname()):
            assert has_connection(os.getpid())
        assert has_connection(os.getpid()) == before
        other.kill()
