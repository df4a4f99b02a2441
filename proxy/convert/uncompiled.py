"""What ``kernel`` uses of the module ``cython`` while it is interpreted, where Cython is not installed."""

from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["Py_ssize_t", "cfunc", "compiled", "declare", "exceptval", "inline", "longlong", "nogil"]

T = TypeVar("T")

compiled: Final = False
Py_ssize_t = longlong = int
"""Numbers have no size here."""


def declare(kind: type, value: T) -> T:  # noqa: ARG001  # it is given nothing but values of their own type
    return value


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
