"""The judgement, on hand-made reports."""

from collections.abc import Mapping, Sequence

import attrs
import pytest

from tests.differential.verdict import Expectation, Reading, Recreated, Revoked, Row, Trimmed, Verdict, judge

UNTIL: Mapping[int, int] = {0: 9, 1: 4}


def rows(partition: int, offsets: Sequence[int], *, crc: int = 7) -> list[Row]:
    return [(partition, offset, crc + offset, 1_000 + offset) for offset in offsets]


def reading(*lines: tuple[int, list[Row]], lasted_ms: int = 500) -> Reading:
    return Reading(lines, "done", lasted_ms)


WHOLE = reading((100, rows(0, range(10))), (200, rows(1, range(5))))


def verdict(side: Reading, expectation: Expectation = None, *, direct: Reading = WHOLE) -> Verdict:
    return judge(direct, direct, side, UNTIL, expectation)


def kinds(found: Verdict) -> list[str]:
    return [each.kind for each in found.problems]


def test_equal_records_in_other_polls_pass() -> None:
    side = reading((50, rows(1, range(5))), (90, rows(0, range(4))), (900, rows(0, range(4, 10))))
    assert verdict(side).outcome == "passed"


@pytest.mark.parametrize(
    "offsets",
    [
        pytest.param([0, 1, 2, 4, 5, 6, 7, 8, 9], id="missing"),
        pytest.param([0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9], id="twice"),
        pytest.param([0, 1, 3, 2, 4, 5, 6, 7, 8, 9], id="reordered"),
        pytest.param([1, 2, 3, 4, 5, 6, 7, 8, 9], id="first missing"),
    ],
)
def test_other_sequence_of_a_partition_is_a_find(offsets: list[int]) -> None:
    side = reading((100, rows(0, offsets)), (200, rows(1, range(5))))
    found = verdict(side)
    assert found.outcome == "find"
    assert kinds(found) == ["records"]


def test_other_content_at_an_offset_is_a_find() -> None:
    side = reading((100, rows(0, range(10), crc=8)), (200, rows(1, range(5))))
    assert kinds(verdict(side)) == ["records"]


def test_records_after_the_end_are_not_compared() -> None:
    side = reading((100, rows(0, range(12))), (200, rows(1, range(5))))
    assert verdict(side).outcome == "passed"


def test_partition_without_any_record_is_a_find() -> None:
    assert kinds(verdict(reading((100, rows(0, range(10)))))) == ["records"]


def test_killed_reader_is_stuck_whatever_it_has_read() -> None:
    side = attrs.evolve(WHOLE, end="stuck", lasted_ms=25_000)
    assert kinds(verdict(side)) == ["stuck"]


def test_group_members_may_repeat_uncommitted_records() -> None:
    side = Reading([(100, rows(0, [0, 1])), (200, rows(0, [1, 2])), (300, rows(0, [*range(3, 10)]))], "done", 300)
    whole = Reading([(100, rows(0, [*range(10)]))], "done", 100)
    until = {0: 9}
    assert judge(whole, whole, side, until).outcome == "find"
    assert judge(whole, whole, side, until, may_repeat=True).outcome == "passed"


def test_killed_reader_that_had_records_lately_is_slow() -> None:
    side = Reading([(100, rows(0, [0, 1])), (21_000, rows(0, [2]))], "stuck", 25_000)
    assert kinds(verdict(side)) == ["slow"]


def test_killed_reader_with_a_wrong_record_is_stuck_and_wrong() -> None:
    side = Reading([(100, rows(0, [0, 1, 3]))], "stuck", 25_000)
    assert kinds(verdict(side)) == ["stuck", "records"]


@pytest.mark.parametrize(("ms", "expected"), [(1_600, []), (1_601, ["slow"])])
def test_slower_than_three_times_and_a_second_is_a_find(ms: int, expected: list[str]) -> None:
    side = reading((100, rows(0, range(10))), (ms, rows(1, range(5))))
    assert kinds(verdict(side)) == expected


def test_gap_that_no_direct_reader_has_is_a_find() -> None:
    lines = ((100, rows(0, range(10))), (9_900, rows(1, range(5))))
    direct = reading(*lines, lasted_ms=9_900)
    side = reading(lines[0], (10_200, rows(1, range(5))), lasted_ms=10_200)
    assert kinds(verdict(side, direct=direct)) == ["gap"]
    assert verdict(side, direct=side).outcome == "passed"


def test_error_of_the_same_class_passes_with_other_words() -> None:
    direct = Reading([], "error", 100, "a.b.TopicAuthorizationException: not [t]")
    side = Reading([], "error", 100, "a.b.TopicAuthorizationException: topics")
    assert verdict(side, direct=direct).outcome == "passed"
    assert kinds(verdict(attrs.evolve(side, error="a.b.TimeoutException"), direct=direct)) == ["error"]


def test_error_without_one_directly_is_a_find() -> None:
    assert "error" in kinds(verdict(Reading([], "error", 100, "KafkaError{code=_FAIL}")))


def test_control_that_differs_voids_the_combination() -> None:
    other = reading((100, rows(0, range(1, 10))), (200, rows(1, range(5))))
    assert judge(WHOLE, other, other, UNTIL).outcome == "void"


def test_direct_reader_that_is_killed_voids_the_combination() -> None:
    stuck = attrs.evolve(WHOLE, end="stuck")
    assert judge(stuck, WHOLE, WHOLE, UNTIL).outcome == "void"


def test_slower_direct_reader_sets_the_pace() -> None:
    slow = reading((100, rows(0, range(10))), (1_500, rows(1, range(5))))
    side = reading((100, rows(0, range(10))), (5_000, rows(1, range(5))))
    assert judge(WHOLE, slow, side, UNTIL).outcome == "passed"
    assert kinds(judge(WHOLE, WHOLE, side, UNTIL)) == ["slow"]
    assert kinds(judge(WHOLE, WHOLE, side, UNTIL, slowest_ms=1_300)) == ["slow"]
    assert judge(WHOLE, WHOLE, side, UNTIL, slowest_ms=1_500).outcome == "passed"


def test_records_of_another_client_are_compared_without_timestamps() -> None:
    truth = reading((0, [(p, o, c, -1) for _, lines in WHOLE.lines for p, o, c, _ in lines]))
    elsewhere = reading((100, rows(0, range(10), crc=9)), (200, rows(1, range(5))))
    assert judge(elsewhere, elsewhere, WHOLE, UNTIL, truth=truth).outcome == "passed"
    assert judge(elsewhere, elsewhere, elsewhere, UNTIL, truth=truth).outcome == "find"


def test_acknowledged_commit_that_is_not_stored_is_a_find() -> None:
    side = attrs.evolve(WHOLE, committed={0: 5}, stored={0: 5})
    assert verdict(side).outcome == "passed"
    assert kinds(verdict(attrs.evolve(side, stored={0: 3}))) == ["commit"]


def trimmed(*late: int) -> Reading:
    """A reading with the records before 6 trimmed at 1 s; *late* are delivered after that."""
    return reading(
        (100, rows(0, range(3))), (3_000, rows(0, late)), (3_100, rows(0, range(6, 10)) + rows(1, range(5)))
    )


def test_trimmed_records_may_be_missing_and_others_may_not() -> None:
    event = Trimmed({0: 6}, 1_000)
    longer = reading((100, rows(0, range(5))), (3_100, rows(0, range(6, 10)) + rows(1, range(5))))
    assert verdict(trimmed(), event, direct=longer).outcome == "passed"
    lost = reading((100, rows(0, range(3))), (3_100, rows(0, range(7, 10)) + rows(1, range(5))))
    assert kinds(verdict(lost, event, direct=longer)) == ["records"]


def test_many_trimmed_records_long_after_the_event_are_stale() -> None:
    event = Trimmed({0: 60}, 1_000)
    until = {0: 99}
    direct = reading((100, rows(0, range(3))), (3_100, rows(0, range(60, 100))))
    side = reading((100, rows(0, range(3))), (3_000, rows(0, range(3, 40))), (3_100, rows(0, range(60, 100))))
    assert kinds(judge(direct, direct, side, until, event)) == ["stale"]
    early = attrs.evolve(side, lines=[(2_400 if ms == 3_000 else ms, got) for ms, got in side.lines])
    assert judge(direct, direct, early, until, event).outcome == "passed"


def recreated(*lines: tuple[int, list[Row]]) -> list[str]:
    event = Recreated(frozenset((p, o, c) for p, o, c, _ in rows(0, range(100))), 1_000)
    direct = reading((100, rows(0, range(3))), (2_900, rows(0, range(3, 10), crc=9)))
    return kinds(judge(direct, direct, reading(*lines), {0: 9}, event))


def test_old_record_after_the_new_topics_is_a_find() -> None:
    assert recreated((100, rows(0, range(3))), (2_900, rows(0, range(3, 10), crc=9))) == []
    assert recreated((100, rows(0, range(3, 10), crc=9)), (2_900, rows(0, [3]))) == ["records"]


def test_gap_in_the_new_topics_records_is_a_find() -> None:
    assert recreated((2_900, [*rows(0, [0, 1], crc=9), *rows(0, range(3, 10), crc=9)])) == ["records"]


def test_many_old_records_long_after_the_topic_was_deleted_are_stale() -> None:
    assert recreated((2_600, rows(0, range(30))), (2_900, rows(0, range(30, 40), crc=9))) == ["stale"]


def test_records_while_reading_is_forbidden_are_stale() -> None:
    event = Revoked(1_000, 5_000)
    direct = Reading([(900, rows(0, range(3)))], "error", 1_500, "TopicAuthorizationException")
    side = Reading([(900, rows(0, range(3))), (3_000, rows(0, range(3, 40)))], "error", 3_000, direct.error)
    assert kinds(judge(direct, direct, side, {0: 99}, event)) == ["stale"]
    restored = attrs.evolve(side, lines=[(5_100 if ms == 3_000 else ms, got) for ms, got in side.lines])
    assert judge(direct, direct, restored, {0: 99}, event).outcome == "passed"


@pytest.mark.parametrize(("sleeps", "outcome"), [((), "find"), ((350, 350, 350), "passed"), ((350,), "find")])
def test_stale_records_are_timed_without_the_applications_sleeps(sleeps: tuple[int, ...], outcome: str) -> None:
    event = Revoked(1_000, 5_000)
    direct = Reading([(900, rows(0, range(3)))], "error", 1_500, "TopicAuthorizationException")
    lines = [(1_000 + 400 * number, rows(0, [number])) for number in range(6)]
    waits = [(0, number, ms) for number, ms in enumerate(sleeps)]
    side = Reading([*lines, (3_200, rows(0, range(6, 40)))], "error", 3_300, direct.error, waits=waits)
    assert judge(direct, direct, side, {0: 99}, event).outcome == outcome


def test_sleeps_before_an_event_do_not_excuse_stale_records() -> None:
    waits = [(0, 0, 350), (0, 1, 350), (0, 2, 350)]
    read = attrs.evolve(reading((100, rows(0, range(3))), (2_600, rows(0, range(3, 40)))), waits=waits)
    assert [ms for ms, _ in read.lines_after(1_000)] == [2_600]


def test_client_that_fails_at_its_reference_cluster_may_succeed_at_this_one() -> None:
    failed = attrs.evolve(WHOLE, end="error", error="KafkaException: no complete records were found")

    def judged(side: Reading) -> Verdict:
        return judge(failed, failed, side, UNTIL, truth=WHOLE)

    assert judged(WHOLE).outcome == "passed"
    assert kinds(judged(reading((100, rows(0, range(10))), (200, rows(1, range(3)))))) == ["records"]
    assert kinds(judged(attrs.evolve(WHOLE, end="error", error="IllegalStateException"))) == ["error"]


AGAIN = reading((100, rows(0, [0, 1, 2, 3, 4, 2, 3, 4, 6, 7, 8, 9])), (200, rows(1, range(5))))
"""A direct reading in which the broker delivered offsets 2 to 4 a second time."""


@pytest.mark.parametrize(
    ("offsets", "outcome"),
    [
        pytest.param([0, 1, 2, 3, 4, 6, 7, 8, 9], "passed", id="once"),
        pytest.param([0, 1, 2, 3, 4, 2, 3, 4, 6, 7, 8, 9], "passed", id="again, as after a seek"),
        pytest.param([0, 1, 2, 3, 4, 3, 4, 6, 7, 8, 9], "passed", id="again from another offset"),
        pytest.param([0, 1, 2, 3, 4, 7, 8, 9], "find", id="one lost after the repeats"),
        pytest.param([0, 1, 2, 4, 6, 7, 8, 9], "find", id="one lost among the repeats"),
        pytest.param([0, 1, 1, 2, 3, 4, 6, 7, 8, 9], "find", id="another again"),
    ],
)
def test_repeats_of_a_converting_broker_are_not_expected(offsets: list[int], outcome: str) -> None:
    side = reading((100, rows(0, offsets)), (200, rows(1, range(5))))
    assert judge(AGAIN, AGAIN, side, UNTIL, directly_again=True).outcome == outcome
