"""Errors for commands whose optional packages are not installed."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from proxy.errors import ConfigError

__all__ = ["needs_demo_extra", "needs_kube_extra", "needs_spark_extra", "needs_top_extra"]


def needs_demo_extra() -> AbstractContextManager[None]:
    """Return a context manager for the import of ``proxy.demo``, which needs the optional packages ``demo``.

    Raises: ConfigError: the import failed because such a package is not installed; the message has the command that
            installs it. Any other import error is raised unchanged.
    """
    return _needs("demo and try need", "demo", "aiokafka")


def needs_kube_extra() -> AbstractContextManager[None]:
    """Return a context manager for the import of ``proxy.kube``, which needs the optional packages ``kube``.

    Raises: ConfigError: the import failed because such a package is not installed; the message has the command that
            installs it. Any other import error is raised unchanged.
    """
    return _needs("inject and webhook need", "kube", "cryptography", "ruamel")


def needs_spark_extra() -> AbstractContextManager[None]:
    """Return a context manager for the import of ``proxy.analysis``, which needs the optional package pyspark.

    Raises: ConfigError: the import failed because pyspark is not installed; the message has the command that
            installs it. Any other import error is raised unchanged.
    """
    return _needs("report and whatif need", "spark", "pyspark")


def needs_top_extra() -> AbstractContextManager[None]:
    """Return a context manager for the import of the optional package ``rich``, which draws in a terminal.

    Raises: ConfigError: the import failed because rich is not installed; the message has the command that installs
            it. Any other import error is raised unchanged.
    """
    return _needs("top needs", "top", "rich")


@contextmanager
def _needs(who: str, extra: str, *packages: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in packages:
            raise
        raise ConfigError(
            f"{who} {package}, which is not installed: pip install 'sidefetch[{extra}]', or make install"
        ) from error
