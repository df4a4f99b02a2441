"""A Python environment with only the packages that are deployed.

If hypothesis is installed, which the tests need, a library of Sidefetch imports it, and pytest with it: 10 MiB and
a
third of a second that a deployment does not have.
"""

import sys
from pathlib import Path
from typing import Final

from tests.kept import kept, run

__all__ = ["deployed_python"]

_ROOT: Final = Path(__file__).resolve().parents[2]
_LOCK: Final = _ROOT / "deploy/runtime.lock"


def deployed_python() -> str:
    """Made once; it runs the sources as they are, with the kernel that is compiled there."""
    folder = kept("deployed", [_LOCK], _make, of=f"{sys.version} {_ROOT}")
    return str(folder / "bin/python")


def _make(folder: Path) -> None:
    run([sys.executable, "-m", "venv", str(folder)], timeout_s=120)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--require-hashes", "-r", str(_LOCK)], timeout_s=600)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "sidefetch.pth").write_text(f"{_ROOT}\n", encoding="utf-8")
