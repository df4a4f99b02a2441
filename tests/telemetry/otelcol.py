"""A real OpenTelemetry Collector, built by its own builder and kept."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import trio

from tests.kept import kept
from tests.prerequisites import require

__all__ = ["CONFIG", "program", "running", "started"]

CONFIG: Final = Path(__file__).parents[2] / "deploy" / "collector.yaml"
_MANIFEST: Final = Path(__file__).parent / "otelcol.yaml"
_BUILDER: Final = "go.opentelemetry.io/collector/cmd/builder@v0.155.0"
_BUILD_S: Final = 900
_QUIET: Final = ("--set=service.telemetry.metrics.level=none", "--set=processors.batch.timeout=100ms")


def program() -> Path:
    """The Collector; takes minutes the first time."""
    require("go")
    return kept("otelcol", [_MANIFEST], _build, of=_BUILDER) / "otelcol"


def _build(folder: Path) -> None:
    environ = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-modcacherw"}
    for command in (["go", "install", _BUILDER], [str(folder / "builder"), "--config", str(_MANIFEST)]):
        done = subprocess.run(
            command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=_BUILD_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
    (folder / "build" / "otelcol").rename(folder / "otelcol")
    (folder / "builder").unlink()
    shutil.rmtree(folder / "build")


@contextmanager
def running(collector: Path, log: Path, environ: Mapping[str, str]) -> Iterator[None]:
    """A Collector as deploy/ has it; *environ* says where it listens, and where spans and metrics go."""
    with log.open("w") as output:
        process = subprocess.Popen(
            [str(collector), "--config", str(CONFIG), *_QUIET],
            env={**os.environ, **environ},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def started(log: Path) -> None:
    """Wait until it accepts data."""
    with trio.fail_after(20):
        while "Everything is ready" not in log.read_text():
            await trio.sleep(0.05)
