"""The tagged field of new leaders' endpoints at the end of responses."""

import pytest

from proxy.wire.endpoints import Endpoint, replace_tagged_endpoints, write_endpoints
from proxy.wire.primitives import Cursor, write_tags

BROKER = Endpoint(1, "broker", 9092, "a")
OURS = Endpoint(1, "127.0.0.1", 9093, "a")


@pytest.mark.parametrize(
    ("replacement", "expected"),
    [(OURS, [(0, write_endpoints([OURS])), (1, b"\1")]), (None, [(1, b"\1")])],
    ids=["replaced", "left out"],
)
def test_only_field_0_is_replaced_and_left_out_if_it_is_empty(
    replacement: Endpoint | None, expected: list[tuple[int, bytes]]
) -> None:
    fields = write_tags([(0, write_endpoints([BROKER])), (1, b"\1")])

    replaced = replace_tagged_endpoints(Cursor(memoryview(fields)), lambda _: replacement)

    assert bytes(replaced) == write_tags(expected)
