"""The tests' own processes: each has a log, and each is ended however the test run ends.

A context manager ends a process normally and on Ctrl-C, which does not reach it by itself: it is in a session of
its
own. If the test run is killed, the warden does it, a small process that holds one end of a pipe: when the pipe
breaks, it kills all registered processes.
"""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

__all__ = ["Process", "forget_ended", "has_connection", "log_tails"]

_LISTENING = "0A"
"""A state of Linux's ``/proc/net/tcp``."""

_WARDEN = """\
import os, signal, sys
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""

_warden: "subprocess.Popen[str] | None" = None
_live: "list[Process]" = []
_ended: list[tuple[str, str]] = []
"""Name and last lines of the processes that have ended since ``forget_ended``."""


def _tell_warden(message: str) -> None:
    """Register (``+pid``) or release (``-pid``) a process group; start the warden if there is none."""
    global _warden
    if _warden is None:
        _warden = subprocess.Popen(
            [sys.executable, "-S", "-c", _WARDEN], stdin=subprocess.PIPE, text=True, start_new_session=True
        )
        atexit.register(_dismiss_warden, _warden)
    assert _warden.stdin is not None
    _warden.stdin.write(message + "\n")
    _warden.stdin.flush()


def _dismiss_warden(warden: "subprocess.Popen[str]") -> None:
    assert warden.stdin is not None
    warden.stdin.close()
    warden.wait()


def has_connection(pid: int) -> bool:
    """Return whether process *pid* has a TCP socket that is not a listener; True where there is no ``/proc``."""
    folder = Path(f"/proc/{pid}")
    if not folder.exists():
        return True
    sockets = set()
    for each in folder.glob("fd/*"):
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(each).removeprefix("socket:[").removesuffix("]"))
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (folder / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] != _LISTENING and fields[9] in sockets:
                    return True
    return False


class Process:
    """A running child and the processes that it starts; leaving the context ends them all.

    Standard error, and standard output unless *piped*, are appended to *log*.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        piped: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.log = log
        self.name = log.stem
        pipe = subprocess.PIPE if piped else None
        with log.open("ab") as sink:
            self._child = subprocess.Popen(
                command,
                stdin=pipe or subprocess.DEVNULL,
                stdout=pipe or sink,
                stderr=sink,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                text=True,
                encoding="utf-8",
                start_new_session=True,
            )
        _tell_warden(f"+{self.pid}")
        _live.append(self)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def stdin(self) -> IO[str]:
        assert self._child.stdin is not None, "not piped"
        return self._child.stdin

    @property
    def stdout(self) -> IO[str]:
        assert self._child.stdout is not None, "not piped"
        return self._child.stdout

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for the signal that ended it."""
        return self._child.poll()

    def log_text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def tail(self, lines: int = 40) -> str:
        """The log's last lines; empty once the log has been removed."""
        return "\n".join(self.log_text().splitlines()[-lines:]) if self.log.exists() else ""

    def send(self, signal_number: int) -> None:
        """Send a signal to the child only."""
        self._child.send_signal(signal_number)

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Let the child do nothing at all, while in context."""
        self.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send(signal.SIGCONT)

    def wait(self, timeout_s: float) -> int:
        """Return the exit code; raises ``subprocess.TimeoutExpired``, and the child runs on."""
        return self._child.wait(timeout_s)

    def kill(self) -> None:
        """End the child and all that it started, at once; harmless when it has gone already."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        if self in _live:
            _live.remove(self)
            _ended.append((self.name, self.tail()))
            _tell_warden(f"-{self.pid}")

    def stop(self, timeout_s: float = 20.0) -> int:
        """End the child by SIGTERM, by SIGKILL after *timeout_s*; return its exit code."""
        self.send(signal.SIGTERM)
        try:
            return self.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return -signal.SIGKILL
        finally:
            self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.kill()


def log_tails() -> Iterator[tuple[str, str]]:
    """Yield name and end of the log of every process that runs or has ended lately, for a failed test's report."""
    for name, tail in [*_ended, *((process.name, process.tail()) for process in _live)]:
        if tail:
            yield name, tail


def forget_ended() -> None:
    """Restrict ``log_tails`` to processes that run now or end from here on: a test begins."""
    _ended.clear()
