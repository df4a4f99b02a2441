"""Answers in the order of their requests."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.relay.pipeline import Pipeline
from tests.pieces import joined


def test_response_waits_for_earlier_responses() -> None:
    pipeline = Pipeline()
    first, second, third = (pipeline.add_slot() for _ in range(3))

    second.pieces = [b"2"]
    assert list(pipeline.take_ready()) == []
    first.pieces = [b"1"]
    assert list(pipeline.take_ready()) == [([b"1"], None), ([b"2"], None)]
    third.pieces = [b"3"]
    assert list(pipeline.take_ready()) == [([b"3"], None)]
    assert len(pipeline) == 0


@given(st.permutations(range(8)))
def test_responses_keep_the_request_order_in_any_order_of_completion(order: list[int]) -> None:
    pipeline = Pipeline()
    slots = [pipeline.add_slot() for _ in order]
    left: list[bytes] = []

    for number in order:
        slots[number].pieces = [b"%d" % number]
        left += [joined(pieces) for pieces, _ in pipeline.take_ready()]

    assert left == [b"%d" % number for number in range(8)]
