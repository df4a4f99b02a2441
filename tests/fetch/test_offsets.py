"""The offsets of partitions as sources report them: within a leader epoch none falls."""

import pytest

from proxy.fetch.offsets import Offsets, OffsetTable
from proxy.wire.fetch import UNKNOWN, PartitionKey, PartitionReply

KEY = PartitionKey("t", 0)


def table(*, epoch: int = 5, offsets: Offsets = (50, 45, 3)) -> OffsetTable:
    """Return a table with offsets that the leader has reported."""
    made = OffsetTable()
    learn(made, epoch, offsets)
    return made


def learn(
    made: OffsetTable, epoch: int, offsets: Offsets, *, is_leader: bool = True, may_fall: bool = False
) -> bool:
    reply = PartitionReply(0, 0, *offsets)
    return made.learn(KEY, reply, epoch, is_leader=is_leader, may_fall=may_fall)


def test_offsets_are_unknown_before_a_source_reports_them() -> None:
    assert OffsetTable().get(KEY) is None


def test_no_offset_falls_within_a_leader_epoch() -> None:
    made = table()

    assert learn(made, 5, (40, 46, 3))
    assert made.get(KEY) == (50, 46, 3)
    assert not learn(made, 5, (49, 40, 2))
    assert made.get(KEY) == (50, 46, 3)


def test_offsets_fall_with_a_newer_leader_epoch() -> None:
    made = table()

    assert learn(made, 6, (40, 40, 0))
    assert made.get(KEY) == (40, 40, 0)


def test_offsets_of_an_older_leader_epoch_are_ignored() -> None:
    made = table(epoch=6)

    assert not learn(made, 5, (60, 60, 6))
    assert made.get(KEY) == (50, 45, 3)


def test_offsets_without_an_epoch_do_not_fall() -> None:
    made = table()

    assert learn(made, UNKNOWN, (60, 40, 3))
    assert made.get(KEY) == (60, 45, 3)


def test_offsets_of_a_leader_that_may_have_another_log_fall() -> None:
    """Check a request by topic name, or without a leader epoch: the topic may have been created again."""
    made = table()

    assert learn(made, 5, (2, 2, 0), may_fall=True)
    assert made.get(KEY) == (2, 2, 0)


@pytest.mark.parametrize("epoch", [5, 6])
def test_follower_lowers_no_offset(epoch: int) -> None:
    made = table()

    learn(made, epoch, (48, 48, 1), is_leader=False)

    assert made.get(KEY) == (50, 48, 3)


def test_offsets_of_a_response_are_raised_to_known_ones_of_the_same_epoch() -> None:
    made = table()

    assert made.raise_to(KEY, 5, (48, 48, 1)) == (50, 48, 3)
    assert made.raise_to(KEY, 6, (48, 48, 1)) == (48, 48, 1)
    assert made.raise_to(KEY, UNKNOWN, (48, 48, 1)) == (48, 48, 1)
    assert made.raise_to(PartitionKey("t", 1), 5, (48, 48, 1)) == (48, 48, 1)


def test_prune_drops_oldest_unread_partitions() -> None:
    made = OffsetTable()
    keys = [PartitionKey("t", number) for number in range(3_000)]
    for number, key in enumerate(keys):
        made.learn(key, PartitionReply(number, 0, 1, 1, 0), 5, is_leader=True)
    assert made.is_large(900)
    assert not made.is_large(1_100)

    made.prune(keys[:10])

    kept = [key for key in keys if made.get(key) is not None]
    assert kept == keys[:10] + keys[-500:]
