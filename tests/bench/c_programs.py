"""Programs in C for comparison: the time that the system calls alone take."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.processes import Process

__all__ = ["c_program"]


@contextlib.contextmanager
def c_program(name: str, *arguments: object) -> Iterator[tuple[Process, int]]:
    """``NAME.c``, compiled and started, and the port that it prints first."""
    with tempfile.TemporaryDirectory(prefix=f"sidefetch-{name}-") as folder:
        program = Path(folder) / name
        source = Path(__file__).with_name(f"{name}.c")
        subprocess.run(["cc", "-O2", "-o", str(program), str(source)], check=True, timeout=60)
        command = [str(program), *map(str, arguments)]
        with Process(command, log=Path(folder) / f"{name}.log", piped=True) as process:
            yield process, int(process.stdout.readline())
