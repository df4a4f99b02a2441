"""Random combinations, and how they are made smaller."""

import attrs
import pytest

from tests.differential.combinations import CLIENTS, Combination, Step, draw, is_direct, request_for, shape_of
from tests.differential.shrink import shrink
from tests.differential.topics import SHAPES, Ends, last_offsets, rows

ENDS = {0: Ends(0, 100), 1: Ends(50, 150), 2: Ends(0, -1)}


def test_seed_draws_the_same_combination_again() -> None:
    assert draw("1/7", "4.3.1") == draw("1/7", "4.3.1")
    assert len({str(draw(f"1/{number}", "4.3.1")) for number in range(50)}) == 50


@pytest.mark.parametrize("kafka", ["3.9.2", "4.3.1"])
def test_drawn_steps_and_events_are_possible_for_their_client(kafka: str) -> None:
    for number in range(300):
        drawn = draw(f"9/{number}", kafka)
        assert drawn.client in CLIENTS
        assert {*drawn.start} <= {*drawn.partitions} <= {*range(shape_of(drawn.shape).partitions)}
        assert drawn.event is None or is_direct(drawn.client, kafka)


def test_fractions_become_offsets_between_the_ends() -> None:
    step = Step("seek", 1, 0.5, to=0.1)
    combination = Combination("x", "java", "small", (0, 1, 2), start={1: 0.2}, steps=(step,))
    request = request_for(combination, ENDS)
    assert request["from"] == {"0": 0, "1": 70, "2": 0}
    assert request["until"] == {"0": 100, "1": 150}
    assert request["steps"] == [{"at": [1, 100], "do": "seek", "partition": 1, "to": 60}]


def test_seek_at_the_end_or_in_an_empty_partition_is_left_out() -> None:
    steps = (Step("seek", 0, 1.0, to=0.1), Step("seek", 0, 0.1, to=1.0), Step("sleep", 2, 0.5, ms=1))
    assert request_for(Combination("x", "java", "small", (0, 1, 2), steps=steps), ENDS)["steps"] == []


def test_shrinking_keeps_only_parts_that_cause_failure() -> None:
    steps = (Step("sleep", 0, 0.1, ms=1), Step("seek", 1, 0.2, to=0.1), Step("commit", 1, 0.3))
    combination = Combination(
        "x",
        "java",
        "small",
        (0, 1, 2),
        settings={"auto.offset.reset": "earliest", "check.crcs": "true", "fetch.max.bytes": 1},
        start={0: 0.5},
        steps=steps,
        options=("--upstream-max-wait", "1s"),
        rack="a",
    )

    def fails(each: Combination) -> bool:
        return "fetch.max.bytes" in each.settings and any(step.do == "seek" for step in each.steps)

    smallest = shrink(combination, fails)
    expected = Combination(
        "x",
        "java",
        "small",
        (1,),
        settings={"auto.offset.reset": "earliest", "fetch.max.bytes": 1},
        steps=(steps[1],),
    )
    assert smallest == expected


def test_shrinking_stops_after_maximum_number_of_trials() -> None:
    asked: list[Combination] = []

    def fails(each: Combination) -> bool:
        asked.append(each)
        return False

    combination = Combination("x", "java", "small", (0, 1, 2), rack="a", start={0: 0.5})
    assert shrink(combination, fails, most=2) == combination
    assert len(asked) == 2


def test_next_generation_of_a_topic_is_longer_and_has_other_records() -> None:
    shape = attrs.evolve(SHAPES["small"], records=500)
    first, second = last_offsets(shape, 0), last_offsets(shape, 1)
    assert all(second[partition] > first[partition] for partition in range(3))
    assert not rows(shape, 0) & rows(shape, 1)
    assert max(offset for partition, offset, _ in rows(shape, 0) if partition == 0) == first[0]
