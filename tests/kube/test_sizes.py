import pytest

from proxy.config import OPTIONS
from proxy.kube.sizes import limit_bytes, request_memory_bytes

MIB = 1024**2


@pytest.mark.parametrize(
    ("memory", "limit"), [(16 * MIB, 128), (64 * MIB, 224), (64 * MIB + 1, 226), (2**30, 2144)]
)
def test_a_containers_limit_is_twice_the_memory_and_96_mib(memory: int, limit: int) -> None:
    assert limit_bytes(memory) == limit * MIB


@pytest.mark.parametrize("memory", [16 * MIB, 64 * MIB, 2**40])
def test_the_memory_of_requests_is_one_that_the_option_takes(memory: int) -> None:
    option = next(each for each in OPTIONS if each.name == "request-memory")

    assert option.kind.parse(str(request_memory_bytes(memory))) == memory // 2
