"""Every test of this folder runs on the compiled kernel and on the interpreted one."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from proxy.convert import down, entry, sizes, up
from tests.convert.kernels import COMPILED, load_interpreted


@pytest.fixture(scope="module", params=["compiled", "interpreted"], autouse=True)
def kernel(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The one that ``proxy.convert`` uses meanwhile."""
    if request.param == "interpreted":
        module = load_interpreted()
    elif COMPILED is None:
        pytest.skip("the kernel is not compiled here: no C compiler, or make install has not been run")
    else:
        module = COMPILED
    with pytest.MonkeyPatch.context() as patch:
        for user in (down, entry, sizes, up):
            patch.setattr(user, "kernel", module)
        yield module
