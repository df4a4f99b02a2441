"""A broker's quota holds back the client it was made for, through Sidefetch as without it, and no other."""

from collections.abc import Iterator

import pytest
import trio
from kio.schema.alter_client_quotas.v1.request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kio.static.primitive import f64

from proxy.demo.client import connect
from proxy.demo.messages import encode_request, read_response
from proxy.wire.apis import ApiKey
from tests.kafka.admin import Admin, unique
from tests.kafka.ask import ask
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import known_records
from tests.sidefetch import Sidefetch

pytestmark = pytest.mark.kafka

SLOW = "slow-client"
BYTES_A_SECOND = 1_000.0
APART = 100
"""Offsets between two fetches, more than one response has."""


@pytest.fixture
def limited(kafka4: KafkaCluster) -> Iterator[KafkaCluster]:
    """A cluster that lets ``SLOW`` read few bytes a second."""
    _set_quota(kafka4, remove=False)
    yield kafka4
    _set_quota(kafka4, remove=True)


def _set_quota(kafka: KafkaCluster, *, remove: bool) -> None:
    entity = EntityData(entity_type="client-id", entity_name=SLOW)
    op = OpData(key="consumer_byte_rate", value=f64(BYTES_A_SECOND), remove=remove)
    entry = EntryData(entity=(entity,), ops=(op,))
    response = ask(kafka.brokers[1].address, AlterClientQuotasRequest(entries=(entry,), validate_only=False))
    assert [each.error_code for each in response.entries] == [0]


async def fetch(address: str, client_id: str, topic: str, version: int, times: int) -> tuple[float, int]:
    """Return the duration of so many fetches of other records each, and the longest throttle time in ms."""
    throttled_ms = 0
    started = trio.current_time()
    async with connect(address) as client:
        for number in range(times):
            offset = number * APART
            partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 4_000}
            request = {
                "max_wait": 10,
                "min_bytes": 1,
                "max_bytes": 4_000,
                "session_epoch": -1,
                "topics": [{"topic": topic, "partitions": [{**partition, "current_leader_epoch": -1}]}],
            }
            await client.send_frame(encode_request(ApiKey.FETCH, version, number, client_id, request))
            frame = await client.receive_frame()
            assert frame is not None
            _, body = read_response(ApiKey.FETCH, version, frame)
            throttled_ms = max(throttled_ms, round(body.throttle_time.total_seconds() * 1000))
    return trio.current_time() - started, throttled_ms


async def test_only_the_client_that_has_a_quota_is_held_back(limited: KafkaCluster) -> None:
    topic = Admin(limited).create_topic(unique("quota"), 1, assignment=[[1]])
    Admin(limited).produce(topic, known_records(5 * APART, 1))
    with Sidefetch(limited.bootstrap) as sidefetch:
        address = f"127.0.0.1:{sidefetch.port_of(1)}"
        quick_s, quick_ms = await fetch(address, "quick-client", topic, 11, 5)
        _, slow_ms = await fetch(address, SLOW, topic, 11, 5)
        old_s, old_ms = await fetch(address, SLOW, topic, 4, 5)
        again_s, again_ms = await fetch(address, "quick-client", topic, 11, 5)

    assert quick_ms == again_ms == 0
    assert slow_ms > 0, "the client of a version that waits by itself gets the throttle time"
    assert old_ms > 0
    assert old_s > old_ms / 1000, "the client of a version that does not is held"
    assert max(quick_s, again_s) < 5
