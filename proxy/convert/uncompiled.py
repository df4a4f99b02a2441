"""A stand-in for the module ``cython``, with the parts that the interpreted ``kernel`` uses without Cython."""

from collections.abc import Callable
from typing import Final, TypeVar

__all__ = ["Py_ssize_t", "cfunc", "compiled", "declare", "exceptval", "inline", "longlong", "nogil"]

T = TypeVar("T")

compiled: Final = False
Py_ssize_t = longlong = int
"""Cython's number types: interpreted numbers have no fixed size."""


def declare(kind: type, value: T) -> T:  # noqa: ARG001  # it is given nothing but values of their own type
    return value


def cfunc(function: T) -> T:
    return function


inline: Final = cfunc


def exceptval(*, check: bool) -> Callable[[T], T]:
    assert not check
    return cfunc


class _NoGil:
    """A stand-in for ``cython.nogil``: a decorator, and a context manager, without effect."""

    def __call__(self, function: T) -> T:
        return function

    def __enter__(self) -> None:
        """Do nothing: the GIL is not released."""

    def __exit__(self, *_: object) -> None:
        """Do nothing: the GIL was not released."""


nogil: Final = _NoGil()
