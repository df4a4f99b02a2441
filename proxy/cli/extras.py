"""What to say where a part of Sidefetch needs packages that are not installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from proxy.errors import ConfigError

__all__ = ["needs_demo_extra"]

_OF_THE_DEMO: Final = frozenset({"aiokafka"})


@contextmanager
def needs_demo_extra() -> Iterator[None]:
    """Around an import of ``proxy.demo``: a missing package of its extra is told as what to install.

    Raises: ConfigError: in place of that ImportError; any other import error goes on as it is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _OF_THE_DEMO:
            raise
        raise ConfigError(
            f"demo and try need {package}, which is not installed: pip install 'sidefetch[demo]', or make install"
        ) from error
