"""A memory cgroup, as a container has one: the kernel ends a process that needs more. It needs root."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

__all__ = ["MemoryCgroup", "memory_cgroup"]

_ROOT: Final = Path("/sys/fs/cgroup")
_JOIN: Final = 'echo $$ > "$0" && exec "$@"'


@attrs.frozen
class MemoryCgroup:
    """A limit on the memory of all processes that ``by`` starts."""

    folder: Path
    is_v2: bool

    @property
    def by(self) -> Sequence[str]:
        """The command that starts a given command in the cgroup."""
        return ("sh", "-c", _JOIN, str(self.folder / "cgroup.procs"))

    @property
    def peak_mib(self) -> float:
        """The most memory that was charged, with the pages of files that could be dropped."""
        name = "memory.peak" if self.is_v2 else "memory.max_usage_in_bytes"
        return int((self.folder / name).read_text(encoding="ascii")) / 2**20

    @property
    def kills(self) -> int:
        """The number of processes that the kernel has ended because of the limit."""
        name = "memory.events" if self.is_v2 else "memory.oom_control"
        lines = (self.folder / name).read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


@contextlib.contextmanager
def memory_cgroup(limit_mib: int) -> Iterator[MemoryCgroup]:
    """A cgroup of at most *limit_mib*, by version 2 or 1 of the kernel's interface; its processes must end before.

    Raises: OSError: this user may not create it, or the kernel has no memory cgroups.
    """
    is_v2 = (_ROOT / "cgroup.controllers").exists()
    group = MemoryCgroup((_ROOT if is_v2 else _ROOT / "memory") / f"sidefetch-{os.getpid()}", is_v2)
    group.folder.mkdir()
    try:
        limit = "memory.max" if is_v2 else "memory.limit_in_bytes"
        (group.folder / limit).write_text(str(limit_mib * 2**20), encoding="ascii")
        yield group
    finally:
        group.folder.rmdir()
