import pytest

from proxy.config import OPTIONS, LimitsConfig
from proxy.kube.sizes import limit_bytes, max_connections, request_memory_bytes

KIB, MIB = 1024, 1024**2


@pytest.mark.parametrize(
    ("memory", "requests", "connections", "limit"),
    [
        (16 * MIB, 8 * MIB, 128, 16 + 20 + 16 + 96),
        (64 * MIB, 32 * MIB, 512, 64 + 80 + 64 + 96),
        (64 * MIB + 1, 32 * MIB, 512, 64 + 80 + 64 + 96 + 1),
        (64 * MIB, 128 * MIB, 512, 64 + 320 + 64 + 96),
        (2**30, 2**29, 2000, 1024 + 1280 + 250 + 96),
    ],
)
def test_memory_limit_of_a_container_covers_all_budgets_and_connections(
    memory: int, requests: int, connections: int, limit: int
) -> None:
    limits = LimitsConfig(request_memory_bytes=requests, max_connections=connections)

    assert limit_bytes(memory, limits) == limit * MIB


@pytest.mark.parametrize("memory", [16 * MIB, 64 * MIB, 2**40])
def test_derived_options_are_values_that_the_options_take(memory: int) -> None:
    parsers = {each.name: each.kind.parse for each in OPTIONS}

    assert parsers["request-memory"](str(request_memory_bytes(memory))) == memory // 2
    assert parsers["max-connections"](str(max_connections(memory))) == min(memory // (128 * KIB), 2000)
