"""``sidefetch COMMAND`` as its users run it, watched while it runs."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import trio

__all__ = ["Command", "started"]

_MARK = "MARK_OF_THIS_TEST"
_ROOT = Path(__file__).parents[1]


@asynccontextmanager
async def started(*arguments: str, env: Mapping[str, str] | None = None) -> AsyncIterator["Command"]:
    mark = str(uuid4())
    command = [sys.executable, "-m", "proxy", *arguments]
    async with trio.open_nursery() as nursery:
        run = partial(
            trio.run_process,
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            cwd=_ROOT,
            env={**os.environ, _MARK: mark, **(env or {})},
        )
        yield Command(await nursery.start(run), mark)


class Command:
    """A running command and its output."""

    def __init__(self, process: trio.Process, mark: str) -> None:
        self._process = process
        self._mark = mark
        self.output = ""

    async def until(self, text: str) -> None:
        """Read until it says so, or ends."""
        assert self._process.stdout is not None
        with trio.fail_after(60):
            while text not in self.output and (chunk := await self._process.stdout.receive_some()):
                self.output += chunk.decode()

    async def until_again(self, text: str) -> None:
        """Read until it says so once more than it has."""
        assert self._process.stdout is not None
        seen = self.output.count(text)
        with trio.fail_after(60):
            while self.output.count(text) == seen and (chunk := await self._process.stdout.receive_some()):
                self.output += chunk.decode()

    async def end(self) -> int:
        """Read to the end; the exit code."""
        await self.until("\0")
        with trio.fail_after(20):
            return await self._process.wait()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    @property
    def lines(self) -> list[str]:
        return self.output.splitlines()

    async def left_running(self) -> list[str]:
        """Command lines of its processes that are still there, after a moment to go."""
        for _ in range(20):
            found = [
                (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                for process in Path("/proc").iterdir()
                if process.name.isdigit() and self._mark.encode() in _environment(process)
            ]
            if not found:
                break
            await trio.sleep(0.05)
        return found


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""
