"""Every test of this folder runs on the compiled kernel and on the interpreted one."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.convert.kernels import COMPILED, load_interpreted, used


@pytest.fixture(scope="module", params=["compiled", "interpreted"], autouse=True)
def kernel(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The one that ``proxy.convert`` uses meanwhile."""
    if request.param == "interpreted":
        module = load_interpreted()
    elif COMPILED is None:
        pytest.skip("the kernel is not compiled here: no C compiler, or make install has not been run")
    else:
        module = COMPILED
    with used(module):
        yield module
