"""The jobs of consumers that share reads, and the limits of their figures."""

from collections import Counter

from tests.bench.frame import Expectation, Table
from tests.bench.reader import Job
from tests.bench.shared import backlogs, expect_at_most, shares


def test_shares_contain_each_partition_once() -> None:
    topics = {f"t-{number}": 100 for number in range(10)}

    jobs = shares(Job("h:1", topics))

    assert len(jobs) == 40
    read = Counter(
        (topic, job.first_partition + each) for job in jobs for topic, n in job.topics.items() for each in range(n)
    )
    assert read == Counter((topic, each) for topic, count in topics.items() for each in range(count))


def test_readers_of_a_backlog_begin_at_different_offsets_of_its_first_half() -> None:
    jobs = backlogs(Job("h:1", {"t": 6}, leader="h:2"), 4, megabytes=60)

    offsets = [job.first_offset for job in jobs]
    assert offsets == [0, 1220, 2441, 3661]  # of 9,765 records
    assert {(job.topics["t"], job.leader) for job in jobs} == {(6, "")}


def test_a_limit_is_met_by_a_median_that_equals_it() -> None:
    table = Table("a case: p50", "ms", {"direct": [1.0], "shared": [9.0, 3.0, 2.0]})

    assert expect_at_most(table, "shared", 3.0) == Expectation("a case: p50: shared 3 ms, at most 3", is_met=True)
    assert not expect_at_most(table, "shared", 2.9).is_met
