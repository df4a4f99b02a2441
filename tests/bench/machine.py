"""The kernel's figures of a process, and of the machine."""

import contextlib
import os
import platform
from collections import Counter
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Final

__all__ = ["connections", "cpu_model", "cpu_seconds", "cpu_ticks", "peer_ports", "resident_mib"]

_ESTABLISHED: Final = "01"


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process so far, in user and kernel mode, to a tick of usually 10 ms."""
    return cpu_ticks(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")) / os.sysconf("SC_CLK_TCK")


def cpu_ticks(stat: str) -> int:
    """utime and stime of ``/proc/PID/stat``, in which the program's name may hold blanks and parentheses."""
    fields = stat.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def resident_mib(pid: int, field: str) -> float:
    """Return a field of ``/proc/PID/status``: VmRSS is the present size, VmHWM the peak."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) / 1024


def connections(pid: int) -> Counter[int]:
    """Return the number of established TCP connections of a process, by the port of the peer."""
    folder = Path(f"/proc/{pid}")
    sockets = set()
    for each in folder.glob("fd/*"):
        with contextlib.suppress(OSError):  # closed in the meantime
            sockets.add(os.readlink(each).removeprefix("socket:[").removesuffix("]"))
    tables = ((folder / "net" / name).read_text(encoding="ascii") for name in ("tcp", "tcp6"))
    return Counter(port for table in tables for port in peer_ports(table, sockets))


def peer_ports(table: str, sockets: Set[str]) -> Iterator[int]:
    """Yield the peer's port of each established connection of ``/proc/net/tcp`` whose inode is in *sockets*."""
    for line in table.splitlines()[1:]:
        fields = line.split()
        if fields[3] == _ESTABLISHED and fields[9] in sockets:
            yield int(fields[2].rpartition(":")[2], 16)


def cpu_model() -> str:
    """Return the model that Linux reports, or the architecture if there is none."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
