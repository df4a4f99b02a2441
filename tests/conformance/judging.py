"""The records that a reader may have received in spite of faults in its cluster."""

from collections.abc import Sequence

from tests.clients.conversation import Task
from tests.kafka.admin import Admin, eventually
from tests.kafka.records import Record, by_partition

__all__ = ["assert_repeats_only_what_was_not_committed", "have_all", "produce_until"]


def produce_until(operator: Admin, topic: str, before: Sequence[Record], task: Task, count: int) -> list[Record]:
    """Produce by sixties to the six partitions until *task* has *count* records: it may have to join first."""
    produced: list[Record] = []

    def enough() -> bool:
        produced.extend(operator.produce_known(topic, 60, 6, first=len(before) + len(produced)))
        task.poll()
        return len(task.records) >= count

    eventually(enough, f"{count} records at one member", timeout_s=60)
    return produced


def have_all(tasks: Sequence[Task], produced: Sequence[Record]) -> bool:
    """Whether each of *produced* has come to one of *tasks* so far."""
    for task in tasks:
        task.poll()
    return {record for task in tasks for record in task.records} >= set(produced)


def assert_repeats_only_what_was_not_committed(tasks: Sequence[Task]) -> None:
    """*tasks*: the members of a group, in the order in which they joined; all have left, or were killed."""
    for number, earlier in enumerate(tasks):
        repeated = {record for task in tasks[number + 1 :] for record in task.records} & set(earlier.records)
        assert all(record.offset >= earlier.committed.get(record.partition, 0) for record in repeated)
    for task in tasks:
        assert all(_ascend(records) for records in by_partition(task.records).values())


def _ascend(records: Sequence[Record]) -> bool:
    offsets = [record.offset for record in records]
    return offsets == sorted(set(offsets))
