"""Errors for commands whose optional packages are not installed."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from proxy.errors import ConfigError

__all__ = ["require_demo_extra", "require_kube_extra", "require_spark_extra", "require_top_extra"]


def require_demo_extra() -> AbstractContextManager[None]:
    """Return a context manager for the import of ``proxy.demo``, which needs the optional packages ``demo``.

    Raises: ConfigError: the import failed because such a package is not installed; the message has the command that
            installs it. Any other import error is raised unchanged.
    """
    return _require("demo and try need", "demo", "aiokafka")


def require_kube_extra() -> AbstractContextManager[None]:
    """Return a context manager for the import of ``proxy.kube``, which needs the optional packages ``kube``.

    Raises: ConfigError: the import failed because such a package is not installed; the message has the command that
            installs it. Any other import error is raised unchanged.
    """
    return _require("inject and webhook need", "kube", "cryptography", "ruamel")


def require_spark_extra() -> AbstractContextManager[None]:
    """Return a context manager for the import of ``proxy.analysis``, which needs the optional package pyspark.

    Raises: ConfigError: the import failed because pyspark is not installed; the message has the command that
            installs it. Any other import error is raised unchanged.
    """
    return _require("report and whatif need", "spark", "pyspark")


def require_top_extra() -> AbstractContextManager[None]:
    """Return a context manager for the import of the optional package ``rich``, which draws in a terminal.

    Raises: ConfigError: the import failed because rich is not installed; the message has the command that installs
            it. Any other import error is raised unchanged.
    """
    return _require("top needs", "top", "rich")


@contextmanager
def _require(who: str, extra: str, *packages: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in packages:
            raise
        raise ConfigError(
            f"{who} {package}, which is not installed: pip install 'sidefetch[{extra}]', or make install"
        ) from error
