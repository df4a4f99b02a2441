"""What to say where a part of Sidefetch needs packages that are not installed."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from proxy.errors import ConfigError

__all__ = ["needs_demo_extra", "needs_kube_extra", "needs_spark_extra", "needs_top_extra"]


def needs_demo_extra() -> AbstractContextManager[None]:
    """Around an import of ``proxy.demo``: a missing package of its extra is told as what to install.

    Raises: ConfigError: in place of that ImportError; any other import error goes on as it is.
    """
    return _needs("demo and try need", "demo", "aiokafka")


def needs_kube_extra() -> AbstractContextManager[None]:
    """The same around an import of ``proxy.kube``."""
    return _needs("inject and webhook need", "kube", "cryptography", "h11", "ruamel")


def needs_spark_extra() -> AbstractContextManager[None]:
    """The same around an import of ``proxy.analysis``."""
    return _needs("report and whatif need", "spark", "pyspark")


def needs_top_extra() -> AbstractContextManager[None]:
    """The same around what draws in a terminal."""
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
