"""The kernel's figures of a process, and of the machine."""

import os
import platform
from pathlib import Path

__all__ = ["cpu_model", "cpu_seconds", "cpu_ticks", "resident_mib"]


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


def cpu_model() -> str:
    """Return the model that Linux reports, or the architecture if there is none."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
