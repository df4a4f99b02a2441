"""The checkout that the tests run in."""

import os
import subprocess
from pathlib import Path
from typing import Final

__all__ = ["commit"]

_ROOT: Final = Path(__file__).parents[1]
_DESCRIBE: Final = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def commit() -> str:
    """Return the commit that measured figures belong to, with ``-dirty`` if files differ from it.

    Where there is no repository, return ``COMMIT`` of the environment, or ``unknown``.
    """
    try:
        done = subprocess.run(_DESCRIBE, capture_output=True, text=True, check=False, cwd=_ROOT)
    except OSError:
        return os.environ.get("COMMIT", "unknown")
    return done.stdout.strip() or os.environ.get("COMMIT", "unknown")
