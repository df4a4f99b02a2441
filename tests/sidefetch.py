"""Sidefetch as its users run it: a process of its own, in front of a cluster, stopped by SIGTERM."""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tests.ports import free_port_range
from tests.processes import Process

__all__ = ["Sidefetch"]

_LISTENING = re.compile(r"listening\b.*\baddress=")
_BROKER_PORTS = 10


class Sidefetch:
    """``sidefetch run`` in front of the brokers at *bootstrap_servers*, while in context.

    Args:
        options: more of its command line.
        grace_s: how long it serves, once stopped, the clients that a test has left connected.
        env:     more of its environment.
        by:      a command that starts a given command, as another user.
        port:    the bootstrap listener's, with those of the brokers after it; by default free ones.
    Raises: AssertionError: it did not listen in time, ended by itself, or did not exit with 0 on SIGTERM.
    """

    python: ClassVar[str] = sys.executable
    """The interpreter."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        options: Sequence[str] = (),
        grace_s: float = 2.0,
        env: Mapping[str, str] | None = None,
        by: Sequence[str] = (),
        port: int | None = None,
    ) -> None:
        self._grace_s = grace_s
        self._env = env
        self.port = port = port or free_port_range(1 + _BROKER_PORTS)
        self.bootstrap = f"127.0.0.1:{port}"
        self._command = [
            *by,
            *(self.python, "-m", "proxy", "run"),
            *("--bootstrap-servers", bootstrap_servers),
            *("--listen", self.bootstrap),
            *("--broker-ports", f"{port + 1}-{port + _BROKER_PORTS}"),
            *("--grace", f"{grace_s:g}"),
            *options,
        ]
        self._folder: Path | None = None
        self._process: Process | None = None
        self._last_words: str | None = None

    @property
    def process(self) -> Process:
        assert self._process is not None, "not in context"
        return self._process

    def log_text(self) -> str:
        """All that it has said; also when it has ended."""
        return self._last_words if self._last_words is not None else self.process.log_text()

    def port_of(self, node_id: int, timeout_s: float = 20.0) -> int:
        """Return the port of its listener for a broker, once it has found the broker."""
        listening = re.compile(rf"listening\b.*\bnode={node_id} port=(\d+)")
        deadline = time.monotonic() + timeout_s
        while (found := listening.search(self.log_text())) is None:
            assert time.monotonic() < deadline, f"no listener for node {node_id}:\n{self.log_text()}"
            time.sleep(0.05)
        return int(found[1])

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="sidefetch-"))
        try:
            self.start()
        except BaseException:
            self._clear()
            raise
        return self

    def start(self) -> None:
        """Start it, also anew: on the same ports, and with the same log, once it has been killed or stopped."""
        assert self._folder is not None, "not in context"
        log = self._folder / "sidefetch.log"
        logged_chars = len(log.read_text(encoding="utf-8")) if log.exists() else 0
        self._process = Process(self._command, log=log, env=self._env)
        self._wait_until_it_listens(logged_chars)

    def kill(self) -> None:
        """End it as a crash would; ``start`` has it back."""
        self.process.kill()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        exit_code = self.process.exit_code
        try:
            if exit_code is None:
                exit_code = self.process.stop(self._grace_s + 10)
            if kind is None:
                assert exit_code == 0, f"Sidefetch ended with {exit_code}\n{self.log_text()}"
        finally:
            self._clear()

    def _wait_until_it_listens(self, logged_chars: int, timeout_s: float = 20.0) -> None:
        """Wait for the listener; *logged_chars* is the length of the log of earlier processes."""
        deadline = time.monotonic() + timeout_s
        while not _LISTENING.search(self.log_text(), logged_chars):
            what = f"{subprocess.list2cmdline(self._command)}\n{self.log_text()}"
            assert self.process.exit_code is None, f"ended with {self.process.exit_code}: {what}"
            assert time.monotonic() < deadline, f"does not listen after {timeout_s:g} s: {what}"
            time.sleep(0.05)

    def _clear(self) -> None:
        self.process.kill()
        self._last_words = self.process.log_text()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
