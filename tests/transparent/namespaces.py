"""Hosts of a network that is there for one test: network namespaces, joined by a pair of interfaces.

All that is done ``inside`` of one, sockets and processes, belongs to it. Each lives as long as the process that
holds it, which ends with the tests; nothing of this machine's own network is touched.
"""

import contextlib
import ctypes
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from tests.processes import Process

__all__ = ["Host", "as_user", "network"]

_CLONE_NEWNET: Final = 0x4000_0000
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


@attrs.frozen
class Host:
    """One namespace."""

    pid: int
    """The process that holds the namespaces."""

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Move this thread, and the processes that it starts, into the namespaces."""
        with open("/proc/thread-self/ns/net") as home, open(f"/proc/{self.pid}/ns/net") as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(home.fileno())

    def run(self, *command: str, input_text: str = "") -> str:
        """Return the output of *command* there; *input_text* is its input. Raises: AssertionError: it fails."""
        with self.inside():
            done = subprocess.run(
                command, input=input_text, capture_output=True, text=True, check=False, timeout=60
            )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout


def as_user(uid: int) -> list[str]:
    """Return a command prefix that runs a program as an unnamed user with read access to files."""
    who = [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return ["setpriv", *who, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search", "--"]


@contextlib.contextmanager
def network(near: tuple[str, ...], far: tuple[str, ...]) -> Iterator[tuple[Host, Host]]:
    """Two hosts with the addresses *near* and *far*, ``10.0.0.1/24`` or ``fd00::1/64``."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as held:
        hosts = []
        for name in ("near", "far"):
            # The program says that it is there: until then, its namespace is still ours.
            command = ["unshare", "--net", "sh", "-c", "echo there; exec sleep infinity"]
            holder = held.enter_context(Process(command, log=Path(folder, f"{name}.log"), piped=True))
            assert holder.stdout.readline() == "there\n", holder.log_text()
            hosts.append(Host(holder.pid))
        one, other = hosts
        one.run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(other.pid))
        for host, addresses in ((one, near), (other, far)):
            host.run("ip", "link", "set", "lo", "up")
            host.run("ip", "link", "set", "eth0", "up")
            for address in addresses:
                no_probing = ["nodad"] if ":" in address else []
                host.run("ip", "address", "add", address, "dev", "eth0", *no_probing)
        yield one, other


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
