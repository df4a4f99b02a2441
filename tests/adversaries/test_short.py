"""Some of the attacks for two seconds each: honest clients get all that they ask for, within the chart's memory.

``make adversaries`` has all attacks, for longer, and also bounds on times and on the memory that remains.
"""

from functools import partial

import pytest
import trio

from tests.adversaries.attacked import attacked
from tests.adversaries.trial import MOST_MEMORY_MIB, try_attack
from tests.kafka.cluster import KafkaCluster


@pytest.mark.kafka
@pytest.mark.parametrize("attack", ["compressed-produce", "large-sessions"])
def test_honest_clients_are_served_during_an_attack(attack: str, kafka4: KafkaCluster) -> None:
    with attacked(kafka4, has_backlog=False) as (sidefetch, topic, admin):
        found = trio.run(partial(try_attack, attack, sidefetch, topic, admin, seconds=2, rest_s=0))

    assert found.during.failures == []
    assert found.during.waits_s
    assert found.during.alive_s
    assert found.during.peak_mib <= MOST_MEMORY_MIB
