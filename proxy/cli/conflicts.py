"""Refusal to start if another distribution has overwritten files of Sidefetch."""

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
"""The name of the metadata folder of the distribution ``proxy.py``, in every spelling of build tools.

The folder is searched by name, because the import of ``importlib.metadata`` takes too long for a health check, and
it also finds distributions in folders that do not contain Sidefetch's files.
"""


def refuse_proxy_py(folder: Path = _SITE_FOLDER) -> None:
    """Raise ConfigError if the distribution ``proxy.py`` is installed in the same folder as Sidefetch.

    That distribution also installs a package ``proxy``. It overwrites Sidefetch's files ``__init__.py`` and
    ``__main__.py`` only, so Sidefetch's console script still runs this function, whichever was installed last.
    """
    names: list[str] = []
    with suppress(OSError):  # not a folder, such as an archive: pip cannot have mixed files there
        names = os.listdir(folder)
    if any(_PROXY_PY_METADATA.fullmatch(name) for name in names):
        raise ConfigError(
            f"the distributions sidefetch and proxy.py are both installed in {folder}: both have a package named"
            " proxy, and overwrite files of each other; install sidefetch into a virtual environment of its own,"
            " and install proxy.py into this one again"
        )
