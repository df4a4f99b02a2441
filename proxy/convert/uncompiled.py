"""What ``kernel`` uses of the module ``cython`` while it is interpreted, where Cython is not installed."""

from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["cfunc", "compiled", "exceptval", "inline", "nogil"]

T = TypeVar("T")

compiled: Final = False


def cfunc(function: T) -> T:
    return function


inline: Final = cfunc


def exceptval(*, check: bool) -> Callable[[T], T]:
    assert not check
    return cfunc


class _NoGil:
    """A decorator, and a context."""

    def __call__(self, function: T) -> T:
        return function

    def __enter__(self) -> None:
        """Nothing is released."""

    def __exit__(self, *_: object) -> None:
        """Nothing is taken."""


nogil: Final = _NoGil()
