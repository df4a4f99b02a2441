"""Waiting rows: the oldest are dropped first, and counted."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.net.observability.backlog import Backlog, LedgerLine
from proxy.telemetry.rows import Loss

SIZE = 10


def filled(rows: int, room_for: int = 100) -> Backlog:
    backlog = Backlog(room_for * SIZE, "p")
    for seq in range(rows):
        backlog.put(line(seq))
    return backlog


def line(seq: int) -> LedgerLine:
    return LedgerLine(seq, b"x" * SIZE)


def seqs(lines: tuple[LedgerLine, ...]) -> list[int]:
    return [each.seq for each in lines]


def test_rows_come_out_in_the_order_in_which_they_came_as_many_as_fit() -> None:
    backlog = filled(5)

    assert seqs(backlog.take(3 * SIZE + 1).lines) == [0, 1, 2]
    assert seqs(backlog.take(100).lines) == [3, 4]
    assert not backlog
    assert backlog.size_bytes == 0


def test_row_larger_than_batch_limit_is_taken_alone() -> None:
    assert seqs(filled(2).take(1).lines) == [0]


def test_full_backlog_drops_oldest_rows_and_reports_the_loss() -> None:
    backlog = filled(10, room_for=4)

    batch = backlog.take(1000)

    assert batch.losses == (Loss("p", "full", 0, 5),)
    assert seqs(batch.lines) == [6, 7, 8, 9]
    assert backlog.lost_rows == 6


def test_returned_rows_stay_the_oldest() -> None:
    backlog = filled(4)

    backlog.give_back(backlog.take(2 * SIZE))

    assert seqs(backlog.take(1000).lines) == [0, 1, 2, 3]


def test_returned_rows_are_dropped_first_when_newer_rows_were_dropped_meanwhile() -> None:
    backlog = filled(2, room_for=6)
    batch = backlog.take(2 * SIZE)
    for seq in (2, 3):
        backlog.put(LedgerLine(seq, b"x" * 4 * SIZE))
    backlog.give_back(batch)

    after = backlog.take(1000)

    assert after.losses == (Loss("p", "full", 0, 2),)
    assert seqs(after.lines) == [3]


def test_returned_losses_are_merged_with_later_losses() -> None:
    backlog = filled(5, room_for=4)
    batch = backlog.take(2 * SIZE)
    backlog.give_back(batch)
    backlog.put(line(5))

    assert backlog.take(1000).losses == (Loss("p", "full", 0, 1),)


def test_losses_of_different_reasons_or_processes_stay_separate() -> None:
    backlog = Backlog(1000, "p")
    for loss in (
        Loss("p", "full", 0, 1),
        Loss("p", "max-size", 2, 3),
        Loss("q", "full", 2, 3),
        Loss("p", "full", 9, 9),
    ):
        backlog.lose(loss)

    assert len(backlog.take(1).losses) == 4
    assert backlog.lost_rows == 7


@given(st.lists(st.sampled_from(["put", "write", "fail"]), max_size=200), st.integers(1, 5))
def test_each_row_is_written_or_reported_lost_exactly_once(steps: list[str], room_for: int) -> None:
    backlog, written, lost, seq = Backlog(room_for * SIZE, "p"), [], [], 0
    for step in [*steps, "write", "write", "write", "write", "write", "write"]:
        if step == "put":
            backlog.put(line(seq))
            seq += 1
            continue
        batch = backlog.take(2 * SIZE)
        if step == "fail":
            backlog.put(line(seq))
            seq += 1
            backlog.give_back(batch)
            continue
        lost += [each for loss in batch.losses for each in range(loss.first, loss.last + 1)]
        written += seqs(batch.lines)

    assert sorted(written + lost) == list(range(seq))
    assert written == sorted(written)
    assert backlog.lost_rows == len(lost)
