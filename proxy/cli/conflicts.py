"""Refusal to run where another distribution overwrites Sidefetch's files."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from proxy.errors import ConfigError

__all__ = ["refuse_proxy_py"]

_SITE_FOLDER: Final = Path(__file__).parents[2]
"""The folder that holds the package ``proxy``: site-packages, or the repository."""
_PROXY_PY_METADATA: Final = re.compile(r"proxy[-_.]+py(-.*)?\.(dist|egg)-info", re.IGNORECASE)
"""The metadata of the distribution ``proxy.py``, in each spelling that build tools have for its name.

Its files are looked for by name, since ``importlib.metadata`` takes longer to import than a health check can spare,
and also finds distributions in folders whose files are not mixed with Sidefetch's.
"""


def refuse_proxy_py(folder: Path = _SITE_FOLDER) -> None:
    """Raise ConfigError if the distribution ``proxy.py`` is installed in the same folder as Sidefetch.

    It installs a package ``proxy`` too. Of Sidefetch's files it overwrites ``__init__.py`` and ``__main__.py``, so
    the console script still gets here, whichever of the two was installed last.
    """
    names: list[str] = []
    with suppress(OSError):  # no folder, such as an archive: pip cannot have mixed files there
        names = os.listdir(folder)
    if any(_PROXY_PY_METADATA.fullmatch(name) for name in names):
        raise ConfigError(
            f"the distributions sidefetch and proxy.py are both installed in {folder}: each has a package named"
            " proxy, and overwrites files of the other; install sidefetch into a virtual environment of its own,"
            " and proxy.py again into this one"
        )
