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
    """A value that is loaded from files, and loaded again when one of the files changes or is replaced.

    ``value`` is the last value, and ``run`` checks the files. Checks follow symbolic links, since Kubernetes
    updates a mounted Secret by replacing a link to its folder. If loading fails with a ConfigError, for example
    because the key of a new certificate is not written yet, the error is logged and the last value stays.
    """

    def __init__(
        self, what: str, paths: Sequence[str | None], load: Callable[[], T], log: Log | None = None
    ) -> None:
        """Load the value for the first time.

        Args:
            what:  the name of the value in log lines.
            paths: the files to check; None is ignored.
            load:  reads the files, and returns the value or raises ConfigError.

        Raises: ConfigError: *load* raises it.
        """
        self._what = what
        self._paths = [path for path in paths if path is not None]
        self._load = load
        self._log = log
        self._seen = self._identify_all()
        self.value = load()

    async def run(self) -> None:
        """Check the files for ever, every 2 s (``POLL_S``); return at once if there are none."""
        while self._paths:
            await trio.sleep(POLL_S)
            await trio.to_thread.run_sync(self.refresh)

    def refresh(self) -> None:
        """Check the files once, and load ``value`` again if one has changed.

        It blocks on the disk: call it in a thread. A ConfigError is logged, and ``value`` stays.
        """
        seen = self._identify_all()
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

    def _identify_all(self) -> list[tuple[int, ...] | None]:
        return [_identity(path) for path in self._paths]


def read_secret(option: str, path: str) -> str:
    """Return the single line of the file at *path*, without its line break.

    *option* is the option that names the file, for error messages.

    Raises: ConfigError: the file cannot be read, is not UTF-8, is empty or has several lines. The message never has
        the content of the file.
    """
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
