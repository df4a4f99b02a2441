"""Downloads and builds of the tests, kept under ``.cache``: ignored by git, removed by ``make clean``."""

import contextlib
import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

__all__ = ["CACHE", "kept", "locked", "run"]

CACHE = Path(__file__).resolve().parents[1] / ".cache"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Be the only process that fills *folder*, which is made; others wait and then find it filled."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def kept(name: str, inputs: Iterable[Path], make: Callable[[Path], None], *, of: str = "") -> Path:
    """Return the folder that *make* has filled from *inputs* and *of*, and fill it again when these change."""
    digest = hashlib.sha256(b"\0".join([of.encode(), *(each.read_bytes() for each in inputs)])).hexdigest()[:12]
    folder = CACHE / "clients" / name
    ready = folder / digest
    with locked(folder):
        if not ready.is_dir():
            # Under another name first, so that an incomplete folder is not used.
            fresh = folder / "fresh"
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            make(fresh)
            fresh.rename(ready)
    return ready


def run(command: list[str], *, timeout_s: float, cwd: Path | None = None) -> None:
    """Run *command* to its end; the error has its output if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, cwd=cwd)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
