"""The judge's results for made-up histories."""

import pytest

from tests.soak.judge import Judge, Reader, Stall, Wrong


def judged(acknowledged: int = 5, *, commits: bool = False) -> tuple[Judge, Reader]:
    """Judge one partition with so many records, all acknowledged at 100 s, and a reader that began at 99 s."""
    judge = Judge(1)
    reader = judge.reader("r", commits=commits, now_s=99.0)
    for offset in range(acknowledged):
        judge.is_acknowledged(0, offset, b"%d" % offset, 100.0)
    return judge, reader


def read(judge: Judge, reader: Reader, *offsets: int, now_s: float = 101.0) -> None:
    for offset in offsets:
        judge.is_read(reader, 0, offset, b"%d" % offset, now_s)


def said(judge: Judge) -> list[str]:
    return [str(wrong) for wrong in judge.wrongs]


def test_judge_accepts_reader_that_reads_all_records_once_in_order() -> None:
    judge, reader = judged()

    read(judge, reader, 0, 1, 2, 3)
    assert judge.behind(judge.ends()) == [reader]
    read(judge, reader, 4, 5)  # the last was not acknowledged, and is there
    judge.give_up()

    assert judge.behind(judge.ends()) == []
    assert judge.wrongs == []


@pytest.mark.parametrize(
    ("offsets", "wrongs"),
    [
        ([0, 1, 4], ["r: 2 lost at 0/2"]),
        ([0, 1, 1, 2, 3, 4], ["r: 1 doubled at 0/1"]),
        ([0, 2, 1, 3, 4], ["r: 1 lost at 0/1", "r: 1 doubled at 0/1"]),
        ([0, 1], ["r: 3 lost at 0/2"]),
        ([], ["r: 5 lost at 0/0"]),
    ],
)
def test_judge_finds_lost_and_repeated_records_without_group(offsets: list[int], wrongs: list[str]) -> None:
    judge, reader = judged()

    read(judge, reader, *offsets)
    judge.give_up()

    assert said(judge) == wrongs


def test_judge_lets_group_member_reread_from_committed_offset_only() -> None:
    judge, reader = judged(commits=True)

    read(judge, reader, 0, 1, 2)
    judge.is_committed(reader, 0, 2)
    read(judge, reader, 2, 3, 4)
    assert judge.wrongs == []
    assert reader.repeated == 1, "and went on from there"
    read(judge, reader, 1)

    assert said(judge) == ["r: 1 doubled at 0/1"]


def test_a_member_of_a_group_must_not_leave_anything_out_when_it_goes_back() -> None:
    judge, reader = judged(commits=True)

    read(judge, reader, 0, 1, 2, 0, 2)

    assert said(judge) == ["r: 1 lost at 0/1"]


def test_judge_finds_different_records_at_same_offset() -> None:
    judge, reader = judged()
    other = judge.reader("other", commits=False, now_s=99.0)

    judge.is_read(reader, 0, 0, b"another", 101.0)
    judge.is_read(other, 0, 0, b"0", 101.0)
    judge.is_acknowledged(0, 1, b"another", 101.0)

    assert judge.wrongs == [
        Wrong("another record", "r", 0, 0, 1),
        Wrong("another record", "producer", 0, 1, 1),
    ]


def test_restarted_reader_begins_at_0_or_at_committed_offset() -> None:
    judge, reader = judged()
    group = judge.reader("g", commits=True, now_s=99.0)

    read(judge, reader, 0, 1, 2, 3, 4)
    read(judge, group, 0, 1, 2, 3, 4)
    judge.is_committed(group, 0, 3)
    for each in (reader, group):
        judge.begin_anew(each, 150.0)
    read(judge, reader, 0, 1, 2, 3, 4, now_s=160.0)
    read(judge, group, 3, 4, now_s=160.0)
    judge.give_up()

    assert judge.wrongs == []
    assert judge.take_longest_stall(170.0) == Stall(1.0, "r"), "what is read again is not late"


def test_restarted_member_may_resume_after_commit_with_lost_response() -> None:
    judge, group = judged(commits=True)

    read(judge, group, 0, 1, 2)
    judge.is_committed(group, 0, 1)
    judge.begin_anew(group, 150.0)
    read(judge, group, 2, 3, now_s=160.0)
    assert judge.wrongs == []
    judge.begin_anew(group, 170.0)
    read(judge, group, 5, now_s=180.0)

    assert said(judge) == ["r: 1 lost at 0/4"], "it cannot have committed what it has not read"


def test_longest_stall_lasts_from_acknowledgement_to_reading_and_counts_meanwhile() -> None:
    judge, reader = judged()

    read(judge, reader, 0, now_s=101.0)
    read(judge, reader, 1, now_s=103.5)
    assert judge.take_longest_stall(103.5) == Stall(3.5, "r")
    assert judge.take_longest_stall(110.0) == Stall(10.0, "r")
    read(judge, reader, 2, 3, 4, now_s=111.0)
    judge.take_longest_stall(111.0)

    assert judge.take_longest_stall(120.0) == Stall()
