"""The ledger rows of records."""

import json
from datetime import timedelta

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v4.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32, i32Timedelta

from proxy.events import ClientRecord, DamageRecord, Record, SessionRecord, UsedApi
from proxy.telemetry.ledger import Row, problems
from proxy.telemetry.rows import Loss, RowMaker, topology_rows
from tests.telemetry.asked import CONVERTED, Asker, exchange, fetch, share, wall_us

ROWS = RowMaker("proxy-1", "b", wall_us)


def row_of(record: Record, **options: object) -> Row:
    row = ROWS.make_row(Asker(), record, 20.0, **options)  # type: ignore[arg-type]
    assert row is not None
    assert not list(problems(row))
    return row


def test_an_exchange_has_its_own_time_cluster_process_and_weight() -> None:
    row = row_of(exchange(), weight=100.0, software="librdkafka 0.11.6")

    common = [
        row[name] for name in ("record", "schema", "at_us", "first_at_us", "cluster_id", "proxy_id", "weight")
    ]
    assert common == ["exchange", 1, wall_us(10.5), wall_us(10.5), "cluster", "proxy-1", 100.0]
    assert (row["connection_id"], row["client_id"], row["reader_rack"]) == (7, "app", "b")
    assert row["software"] == "librdkafka 0.11.6"


def test_without_conversion_a_client_would_have_exchanged_the_same_directly() -> None:
    row = row_of(exchange())

    assert (row["direct_request_bytes"], row["direct_response_bytes"]) == (100, 900)
    assert row["direct_partition_looks"] == 3
    assert row["converted_to"] is None


def test_direct_response_bytes_of_converted_fetch_use_broker_record_size() -> None:
    row = row_of(exchange(source_bytes=700, delivered_bytes=920, response_bytes=1120, converted=CONVERTED))

    assert row["direct_response_bytes"] == 900
    converted = ("in_bytes", "out_bytes", "records", "to")
    assert [row[f"converted_{name}"] for name in converted] == [700, 900, 10, 1]
    assert (row["padding_bytes"], row["conversion_cpu_us"]) == (20, 55)


def test_the_waits_add_up() -> None:
    row = row_of(exchange())

    parts = [row[f"{cause}_us"] for cause in ("poll", "broker", "budget", "convert", "throttle", "write")]
    assert parts == [400_000, 90_000, 0, 0, 0, 10_000]
    assert row["total_us"] == sum(parts)


def test_sources_have_the_racks_of_their_brokers() -> None:
    row = row_of(exchange(sources=(share(node=2), share("", -1, leader=-1))))

    assert row["sources"][0] == {
        "topic": "t",
        "node": 2,
        "rack": "b",
        "leader_node": 1,
        "leader_rack": "a",
        "wanted": 3,
        "bytes": 700,
        "request_share_bytes": 40,
    }
    assert row["sources"][1] | {"topic": None, "node": -1, "rack": None, "leader_rack": None} == row["sources"][1]


def test_sources_beyond_64_are_summed_in_one() -> None:
    shares = [share(f"t{n}", record_bytes=n, wanted=1) for n in range(100)]

    sources = row_of(exchange(sources=(share("", -1, leader=-1, record_bytes=5, wanted=1), *shares)))["sources"]

    assert len(sources) == 65
    assert sources[0]["topic"] == "t99"
    assert [source["topic"] for source in sources].count(None) == 1
    assert sources[-1]["topic"] is None
    assert sum(source["bytes"] for source in sources) == sum(range(100)) + 5
    assert sum(source["wanted"] for source in sources) == 101


def test_errors_are_reported_with_their_counts() -> None:
    assert row_of(exchange(errors=((3, 2), (6, 1))))["errors"] == [{"code": 3, "n": 2}, {"code": 6, "n": 1}]


def test_an_exchange_that_is_traced_names_its_trace() -> None:
    traced = ROWS.make_row(Asker(trace_id="0af7"), exchange(), 20.0)

    assert traced is not None
    assert (row_of(exchange())["trace_id"], traced["trace_id"]) == (None, "0af7")


def test_upstream_fetch_row_has_broker_fetcher_sizes_and_times() -> None:
    row = row_of(fetch(throttle_ms=30))

    assert (row["node"], row["rack"], row["fetcher"], row["kind"]) == (2, "b", "long-poll", "incremental")
    assert (row["epoch_first"], row["epoch_last"], row["fetches"]) == (5, 5, 1)
    assert (row["request_bytes"], row["response_bytes"], row["record_bytes"]) == (90, 800, 700)
    assert (row["broker_us"], row["throttle_us"]) == (250_000, 30_000)


def test_fetch_row_of_one_connection_has_its_columns_in_a_fixed_order() -> None:
    row = row_of(fetch())

    assert json.dumps(row, separators=(",", ":")) == (
        '{"record":"fetch","schema":1,"at_us":978307210250000,"first_at_us":978307210250000,'
        '"cluster_id":"cluster","proxy_id":"proxy-1",'
        '"seq":-1,"weight":1.0,"fetches":1,"connection_id":7,"fetcher_id":"2-long-poll","fetcher":"long-poll",'
        '"node":2,"rack":"b","version":17,"kind":"incremental","session_id":99,"epoch_first":5,"epoch_last":5,'
        '"size":30,"named":1,"forgotten":0,"answered":1,"request_bytes":90,"response_bytes":800,'
        '"record_bytes":700,"dropped_bytes":0,"broker_us":250000,"throttle_us":0,"error":0,"client_fetches":1}'
    )


def test_fetch_row_of_a_shared_cache_names_no_connection_but_its_broker() -> None:
    of_one, shared = row_of(fetch()), ROWS.make_row(Asker(is_shared_cache=True), fetch(client_fetches=20), 20.0)

    assert shared is not None
    assert not list(problems(shared))
    assert shared == of_one | {"connection_id": None, "client_fetches": 20}


@pytest.mark.parametrize(("node", "rack"), [(2, "b"), (3, None), (9, None)])
def test_a_broker_without_rack_or_unknown_has_none(node: int, rack: str | None) -> None:
    assert row_of(fetch(node=node))["rack"] == rack


def test_session_row_has_event_and_times() -> None:
    record = SessionRecord(1, 99, "evicted", 30, fetcher_id="1-long-poll", reason="gone", created_s=3.0, used_s=9.0)

    row = row_of(record)

    assert (row["side"], row["event"], row["reason"], row["partitions"]) == ("upstream", "evicted", "gone", 30)
    assert (row["at_us"], row["created_us"], row["last_used_us"]) == (wall_us(20), wall_us(3), wall_us(9))


def test_a_session_that_never_was_has_no_times() -> None:
    row = row_of(SessionRecord(1, 0, "refused", 30))

    assert [row[name] for name in ("created_us", "last_used_us", "fetcher_id", "reason")] == [None] * 4


def test_client_row_has_software_and_api_usage() -> None:
    row = row_of(ClientRecord("app", "librdkafka 0.11.6", True, (UsedApi(1, 4, 17, 12, 1200),)))

    assert (row["client_id"], row["software"]) == ("app", "librdkafka 0.11.6")
    assert row["apis"] == [{"key": 1, "version": 4, "upgraded_to": 17, "requests": 12, "bytes": 1200}]


def test_other_records_have_no_row() -> None:
    assert ROWS.make_row(Asker(), DamageRecord(1, "t", 0, 5, "why"), 20.0) is None


def test_a_loss_stands_in_the_place_of_the_last_row_that_is_lost() -> None:
    row = ROWS.make_lost_row(Loss("proxy-0", "full", 5, 9), 123, "cluster")

    assert not list(problems(row))
    assert (row["proxy_id"], row["seq"], row["at_us"]) == ("proxy-0", 9, 123)
    assert (row["reason"], row["count"], row["seq_first"], row["seq_last"]) == ("full", 5, 5, 9)


def test_each_partition_of_a_cluster_has_a_row() -> None:
    def partition(index: int, leader: int, in_sync: tuple[int, ...]) -> MetadataResponsePartition:
        return MetadataResponsePartition(
            error_code=ErrorCode.none,
            partition_index=i32(index),
            leader_id=BrokerId(leader),
            replica_nodes=(BrokerId(1), BrokerId(2)),
            isr_nodes=tuple(map(BrokerId, in_sync)),
        )

    topics = (("t", (partition(1, 2, (2,)), partition(0, 1, (1, 2)))), ("a", (partition(0, -1, ()),)))
    metadata = MetadataResponse(
        throttle_time=i32Timedelta.parse(timedelta(0)),
        brokers=tuple(
            MetadataResponseBroker(node_id=BrokerId(n), host="h", port=i32(1), rack=r)
            for n, r in ((1, "a"), (2, None))
        ),
        cluster_id="c",
        controller_id=BrokerId(1),
        topics=tuple(
            MetadataResponseTopic(error_code=ErrorCode.none, is_internal=False, name=TopicName(n), partitions=p)
            for n, p in topics
        ),
    )

    rows = list(topology_rows(metadata, "proxy-1", 5))

    assert not [problem for row in rows for problem in problems(row)]
    assert [(row["topic"], row["partition"], row["leader"]) for row in rows] == [
        ("a", 0, -1),
        ("t", 0, 1),
        ("t", 1, 2),
    ]
    assert {(row["cluster_id"], row["proxy_id"], row["at_us"]) for row in rows} == {("c", "proxy-1", 5)}
    assert rows[2]["replicas"] == [{"node": 1, "rack": "a", "in_sync": 0}, {"node": 2, "rack": None, "in_sync": 1}]
