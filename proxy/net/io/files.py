"""Values loaded from files that are replaced while Sidefetch runs: certificates, keys, passwords."""

import os
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

import trio

from proxy.errors import ConfigError
from proxy.net.io.logs import Log

__all__ = ["POLL_S", "WatchedFiles", "read_secret"]

T = TypeVar("T")

POLL_S: Final = 2.0
"""The interval between checks of the files, in seconds. Kubernetes updates volumes up to a minute late anyway."""
_MOST_BYTES: Final = 1024**2


class WatchedFiles(Generic[T]):
    """The value that *load* returns for the files at *paths*, loaded again when one of them is replaced or changes.

    Mounted secrets are links to a folder whose link is swapped, so each check follows links. If loading fails, for
    example because the key of a new certificate is not written yet, the error is logged and the last value stays.

    Raises: ConfigError: the first load fails, when there is no last value.
    """

    def __init__(
        self, what: str, paths: Sequence[str | None], load: Callable[[], T], log: Log | None = None
    ) -> None:
        self._what = what
        self._paths = [path for path in paths if path is not None]
        self._load = load
        self._log = log
        self._seen = self._look()
        self.value = load()

    async def run(self) -> None:
        """Check the files for ever."""
        while self._paths:
            await trio.sleep(POLL_S)
            await trio.to_thread.run_sync(self.refresh)

    def refresh(self) -> None:
        """Check the files once, and load the value again after a change; may wait for the disk."""
        seen = self._look()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self.value = self._load()
        except ConfigError as wrong:
            if self._log is not None:
                self._log.warning(
                    "credentials-reload-failed", what=self._what, reason="; ".join(map(str, wrong.args))
                )
        else:
            if self._log is not None:
                self._log.info("credentials-reloaded", what=self._what)

    def _look(self) -> list[tuple[int, ...] | None]:
        return [_identity(path) for path in self._paths]


def read_secret(option: str, path: str) -> str:
    """Return the single line of the file at *path*; error messages never contain it. Raises: ConfigError."""
    try:
        with open(path, "rb") as file:
            text = file.read(_MOST_BYTES).decode().strip("\r\n")
    except OSError as wrong:
        raise ConfigError(
            f"{option}: {path} cannot be read ({wrong.strerror}); accepted: a readable file"
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"{option}: {path} is not UTF-8; accepted: a file with one line of text") from None
    if not text or "\n" in text or "\0" in text:
        raise ConfigError(f"{option}: {path} is empty or has several lines; accepted: a file with one line of text")
    return text


def _identity(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size)
