"""kafka-python, pure Python: 2.0.2 with full fetches of version 4; 1.4.7 as if to brokers of a version."""

import sys
from collections.abc import Iterable
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import CommitFailedError, KafkaError

from tests.clients.drive import Drive, seek_or_pause
from tests.clients.talk import CHUNK_BYTES, MAX_BYTES, Talk, from_text, serve

API_VERSION = tuple(map(int, sys.argv[1].split("."))) if len(sys.argv) > 1 else None
"""That of the brokers, so far as it wants to know; None to ask them."""


def _consumer(request: dict[str, Any], **more: object) -> Any:
    return KafkaConsumer(
        bootstrap_servers=request["bootstrap"],
        api_version=API_VERSION,
        client_id=request.get("client_id", "kafka-python"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=request.get("chunk_bytes", CHUNK_BYTES),
        fetch_max_bytes=request.get("max_bytes", MAX_BYTES),
        fetch_max_wait_ms=request.get("wait_ms", 500),
        **more,
    )


def _report(talk: Talk, polled: dict[Any, Iterable[Any]]) -> None:
    for records in polled.values():
        for each in records:
            timestamp_ms = -1 if each.timestamp is None else each.timestamp
            talk.record(each.partition, each.offset, timestamp_ms, each.key, each.value, each.headers)


def _poll_until(talk: Talk, consumer: Any, count: int | None, *, commit: bool) -> None:
    while (count is None or talk.count < count) and not talk.has_commands():
        polled = consumer.poll(timeout_ms=200)
        _report(talk, polled)
        if commit and polled:
            after = {partition: records[-1].offset + 1 for partition, records in polled.items()}
            try:
                consumer.commit({partition: OffsetAndMetadata(offset, "") for partition, offset in after.items()})
            except (
                CommitFailedError
            ) as error:  # the group has moved on: whoever has the partitions reads this again
                talk.say(heard=str(error))
            else:
                talk.say(committed={partition.partition: offset for partition, offset in after.items()})


def read(talk: Talk, request: dict[str, Any]) -> None:
    consumer = _consumer(request)
    try:
        consumer.assign([TopicPartition(request["topic"], each) for each in request["partitions"]])
        _poll_until(talk, consumer, request["count"], commit=False)
    finally:
        consumer.close()


def group(talk: Talk, request: dict[str, Any]) -> None:
    consumer = _consumer(request, group_id=request["group"], session_timeout_ms=6_000, heartbeat_interval_ms=500)
    try:
        consumer.subscribe([request["topic"]])
        _poll_until(talk, consumer, request["count"], commit=True)
    finally:
        consumer.close(autocommit=False)


def produce(_: Talk, request: dict[str, Any]) -> list[list[int]]:
    codec = request.get("codec", "none")
    producer = KafkaProducer(
        bootstrap_servers=request["bootstrap"],
        api_version=API_VERSION,
        compression_type=None if codec == "none" else codec,
        acks="all",
        linger_ms=20,
        retries=5,
    )
    try:
        sent = [
            producer.send(
                request["topic"],
                partition=partition,
                timestamp_ms=timestamp_ms,
                key=from_text(key),
                value=from_text(value),
                headers=[(name, from_text(data)) for name, data in headers],
            )
            for partition, _, timestamp_ms, key, value, headers in request["records"]
        ]
        producer.flush(30)
        places = [future.get(30) for future in sent]
    finally:
        producer.close(10)
    return [[place.partition, place.offset] for place in places]


def _admin(request: dict[str, Any]) -> Any:
    return KafkaAdminClient(bootstrap_servers=request["bootstrap"])


def create(_: Talk, request: dict[str, Any]) -> None:
    admin = _admin(request)
    try:
        admin.create_topics([NewTopic(request["topic"], request["partitions"], 2)])
    finally:
        admin.close()


def delete(_: Talk, request: dict[str, Any]) -> None:
    admin = _admin(request)
    try:
        admin.delete_topics([request["topic"]])
    finally:
        admin.close()


def offsets(_: Talk, request: dict[str, Any]) -> dict[int, list[int]]:
    consumer = _consumer(request)
    try:
        partitions = [
            TopicPartition(request["topic"], each)
            for each in sorted(consumer.partitions_for_topic(request["topic"]))
        ]
        first, last = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    finally:
        consumer.close()
    return {each.partition: [first[each], last[each]] for each in partitions}


def drive(talk: Talk, request: dict[str, Any]) -> None:
    state = Drive(talk, request)
    options = {"client_id": request.get("client_id"), "group_id": request.get("group"), "enable_auto_commit": False}
    consumer = KafkaConsumer(
        bootstrap_servers=request["bootstrap"], api_version=API_VERSION, **options, **request["settings"]
    )
    places = {each: TopicPartition(state.topic, each) for each in state.next}
    try:
        consumer.assign([*places.values()])
        while not state.is_done:
            if state.is_all_due():
                consumer.assign([*places.values()])
            for each in state.take_unplaced():
                consumer.seek(places[each], state.next[each])
            consumer.pause(*(places[each] for each in state.paused() if each in state.assigned))
            consumer.resume(*(places[each] for each in state.take_resumed()))
            for records in consumer.poll(timeout_ms=100).values():
                for record in records:
                    at = record.partition, record.offset, record.timestamp, record.key, record.value
                    steps = [*state.report(*at)]
                    for step in steps:
                        _take(step, state, consumer, places)
                    if any(step["do"] == "seek" for step in steps):
                        break
            state.flush()
    finally:
        consumer.close(autocommit=False)


def _take(step: dict[str, Any], state: Drive, consumer: Any, places: dict[int, Any]) -> None:
    match step["do"]:
        case "seek" | "pause":
            seek_or_pause(step, state, consumer, places)
        case "assign":
            consumer.assign([places[each] for each in state.assign(step)])
        case "commit":
            offsets = state.to_commit()
            try:
                consumer.commit({places[each]: OffsetAndMetadata(offset, "") for each, offset in offsets.items()})
            except KafkaError as error:
                state.hear(error)
            else:
                state.committed(offsets)


if __name__ == "__main__":
    serve({each.__name__: each for each in (read, group, produce, create, delete, offsets, drive)})
