"""The kernel, compiled and interpreted, side by side."""

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from proxy.convert import down, entry, kernel, sizes, up

__all__ = ["COMPILED", "SOURCE", "load_interpreted", "used"]

SOURCE: Final = Path(str(kernel.__file__)).with_name("kernel.py")
COMPILED: Final[ModuleType | None] = kernel if kernel.is_compiled else None
_LOADED: dict[bool, ModuleType] = {}


def load_interpreted(*, with_cython: bool = False) -> ModuleType:
    """The source as a module of its own, as it runs where Cython is not installed, or where it is."""
    if with_cython not in _LOADED:
        spec = importlib.util.spec_from_file_location("proxy.convert.interpreted_kernel", SOURCE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        hidden = {} if with_cython else {"cython": None}
        before = {name: sys.modules.get(name) for name in hidden}
        sys.modules.update(hidden)  # type: ignore[arg-type]  # None is how an import is refused
        try:
            spec.loader.exec_module(module)
        finally:
            for name, old in before.items():
                if old is None:
                    del sys.modules[name]
                else:
                    sys.modules[name] = old
        assert not module.is_compiled
        _LOADED[with_cython] = module
    return _LOADED[with_cython]


@contextmanager
def used(module: ModuleType) -> Iterator[None]:
    """``proxy.convert`` uses *module* meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        for user in (down, entry, sizes, up):
            patch.setattr(user, "kernel", module)
        yield
