"""The number of slots that a fleet needs."""

import pytest
from pyspark.sql import SparkSession

from proxy.analysis.whatif.fleet import Fleet, candidates, heap_bytes, play
from proxy.analysis.whatif.replay import Others, Outcome
from proxy.analysis.whatif.sizing import RESULT, select_smallest, sizing
from tests.analysis.rows import columns

FLEET = Fleet(clients=200, partitions=1000, brokers=10, read=1000, restart_s=600)


def test_sessions_are_those_of_clients_that_read_anything_of_a_broker() -> None:
    everything = Fleet()
    assert (everything.sessions, round(everything.session_partitions)) == (100_000, 1000)
    little = Fleet(read=1)
    assert little.sessions == 1000
    assert little.session_partitions == pytest.approx(1)
    assert Fleet(fetchers=2).sessions == 200_000
    assert Fleet(fetchers=2).session_partitions == pytest.approx(500)


def test_enough_slots_grant_everybody_and_too_few_refuse() -> None:
    wide, tight = play(FLEET, 400, 1, hours=0.5), play(FLEET, 160, 1, hours=0.5)

    assert (wide.refused, wide.noticed) == (0, 0)
    assert wide.in_session / wide.fetches > 0.95
    assert tight.refused > 100
    assert 0.7 < tight.in_session / tight.fetches < 0.9
    assert tight.peak_sessions <= 160
    assert tight.peak_partitions == 100 * tight.peak_sessions


def test_fleet_without_a_session_at_a_broker_needs_no_slot() -> None:
    tiny = Fleet(clients=1, partitions=100, brokers=100, read=1)

    assert tiny.sessions == 0
    assert candidates(tiny, Others()) == [0]
    assert play(tiny, 0, 1) == Outcome()


def test_as_many_slots_as_sessions_are_too_few_since_shards_are_not_even() -> None:
    assert play(FLEET, 200, 1).refused > 0


def test_candidate_slot_counts_are_multiples_of_shard_count() -> None:
    tried = candidates(FLEET, Others(followers=9))

    assert tried == sorted(tried)
    assert all(not slots % 8 for slots in tried)
    assert tried[-1] >= 2 * (200 + 9)


def test_the_smallest_number_is_one_from_which_on_all_are_enough(spark: SparkSession) -> None:
    sized = sizing(spark, FLEET, [160, 200, 400, 480], hours=0.5, others=Others(followers=3)).cache()

    assert columns(sized.schema) == columns(RESULT)
    rows = sized.collect()
    assert [each["slots"] for each in rows] == [160, 200, 400, 480]
    assert [each["is_enough"] for each in rows] == [False, False, True, True]
    assert all(each["heap_bytes"] == heap_bytes(each["peak_sessions"], each["peak_partitions"]) for each in rows)
    assert [each["slots"] for each in select_smallest(sized).collect()] == [400]
    assert select_smallest(sized.where("slots < 400")).isEmpty()
    sized.unpersist()
