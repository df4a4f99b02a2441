"""A wall clock that can be set, of one process: the machine's own is not ours."""

import struct
from pathlib import Path
from typing import Final

from tests.kept import kept, run
from tests.prerequisites import require

__all__ = ["WallClock"]

_SOURCE: Final = Path(__file__).with_suffix(".c")
_SECONDS: Final = struct.Struct("=q")


def _built() -> Path:
    require("c")

    def build(folder: Path) -> None:
        run(
            ["cc", "-O2", "-shared", "-fPIC", "-o", str(folder / "wallclock.so"), str(_SOURCE), "-ldl"],
            timeout_s=60,
        )

    return kept("wallclock", [_SOURCE], build) / "wallclock.so"


class WallClock:
    """That of processes that are started with ``env``; *file* is where they look."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._file.write_bytes(_SECONDS.pack(0))
        self.env = {"LD_PRELOAD": str(_built()), "WALLCLOCK_OFFSET": str(file)}

    def jump(self, offset_s: int) -> None:
        """Let it be so many seconds ahead of the machine's, or behind it."""
        with self._file.open("r+b") as file:
            file.write(_SECONDS.pack(offset_s))
