"""librdkafka through confluent-kafka: full fetches of the newest versions, many requests in flight."""

import time
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.clients.drive import Drive
from tests.clients.talk import CHUNK_BYTES, MAX_BYTES, Talk, from_text, serve

_ENDING: Final = (KafkaError._AUTO_OFFSET_RESET, KafkaError.TOPIC_AUTHORIZATION_FAILED)
"""Errors that end other clients, and that this one only reports."""


def _consumer(request: dict[str, Any]) -> Consumer:
    max_bytes = request.get("max_bytes", MAX_BYTES)
    return Consumer(
        {
            "bootstrap.servers": request["bootstrap"],
            "client.id": request.get("client_id", "librdkafka"),
            "group.id": request.get("group", "unused"),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": request.get("isolation", "read_committed"),
            "max.partition.fetch.bytes": request.get("chunk_bytes", CHUNK_BYTES),
            "fetch.max.bytes": max_bytes,
            # It refuses to ask for less at once than it would send.
            "message.max.bytes": min(max_bytes, 1_000_000),
            "fetch.wait.max.ms": request.get("wait_ms", 500),
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            "check.crcs": True,
            "log_level": 3,
        }
    )


def _report(talk: Talk, message: Message, after: dict[int, int]) -> None:
    """Report *message*, and note in *after* the offset after it."""
    if (error := message.error()) is not None:
        # librdkafka overcomes all errors that are not fatal; the test notices lost records.
        if error.fatal():
            raise KafkaException(error)
        talk.say(heard=str(error))
        return
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    key, value, headers = message.key(), message.value(), message.headers()
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    named: list[Any] = list(headers.items()) if isinstance(headers, dict) else list(headers or [])
    talk.record(partition, offset, message.timestamp()[1], key, value, named)
    after[partition] = offset + 1


def _commit(talk: Talk, consumer: Consumer, topic: str, after: dict[int, int]) -> None:
    try:
        answers = consumer.commit(
            offsets=[TopicPartition(topic, partition, offset) for partition, offset in after.items()],
            asynchronous=False,
        )
    except KafkaException as error:  # the group has moved on: whoever has the partitions reads this again
        talk.say(heard=str(error))
    else:
        talk.say(committed={each.partition: each.offset for each in answers or () if each.error is None})


def _poll_until(talk: Talk, consumer: Consumer, count: int | None, *, commit_to: str | None) -> None:
    while (count is None or talk.count < count) and not talk.has_commands():
        after: dict[int, int] = {}
        for message in consumer.consume(200, timeout=0.2):
            _report(talk, message, after)
        if commit_to is not None and after:
            _commit(talk, consumer, commit_to, after)


def read(talk: Talk, request: dict[str, Any]) -> None:
    consumer = _consumer(request)
    try:
        consumer.assign(
            [TopicPartition(request["topic"], each, OFFSET_BEGINNING) for each in request["partitions"]]
        )
        _poll_until(talk, consumer, request["count"], commit_to=None)
    finally:
        consumer.close()


def group(talk: Talk, request: dict[str, Any]) -> None:
    consumer = _consumer(request)
    try:
        consumer.subscribe([request["topic"]])
        _poll_until(talk, consumer, request["count"], commit_to=request["topic"])
    finally:
        consumer.close()


def produce(_: Talk, request: dict[str, Any]) -> list[list[int]]:
    producer = Producer(
        {
            "bootstrap.servers": request["bootstrap"],
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": request.get("codec", "none"),
            "log_level": 3,
        }
    )
    places: list[list[int]] = []
    problems: list[str] = []

    def delivered(error: object, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            problems.append(str(error))
        else:
            places.append([partition, offset])

    for partition, _, timestamp_ms, key, value, headers in request["records"]:
        producer.produce(
            request["topic"],
            partition=partition,
            timestamp=timestamp_ms,
            key=from_text(key),
            value=from_text(value),
            headers=[(name, from_text(data)) for name, data in headers],
            on_delivery=delivered,
        )
    if producer.flush(30) or problems:
        raise RuntimeError(f"not delivered: {problems[:5]}")
    return places


def _admin(request: dict[str, Any]) -> AdminClient:
    return AdminClient({"bootstrap.servers": request["bootstrap"], "log_level": 3})


def create(_: Talk, request: dict[str, Any]) -> None:
    topic = NewTopic(request["topic"], num_partitions=request["partitions"], replication_factor=2)
    admin = _admin(request)  # bound, because its unfinished operations are cancelled when it is collected
    admin.create_topics([topic])[request["topic"]].result()


def delete(_: Talk, request: dict[str, Any]) -> None:
    admin = _admin(request)
    admin.delete_topics([request["topic"]])[request["topic"]].result()


def offsets(_: Talk, request: dict[str, Any]) -> dict[int, list[int]]:
    topic = request["topic"]
    consumer = _consumer(request)
    try:
        found = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        return {
            each: list(consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=10) or ())
            for each in sorted(found)
        }
    finally:
        consumer.close()


def drive(talk: Talk, request: dict[str, Any]) -> None:
    state = Drive(talk, request)
    options = {"group.id": request.get("group") or "unused", "enable.auto.commit": False, "log_level": 3}
    options |= {"client.id": request.get("client_id", "librdkafka"), "bootstrap.servers": request["bootstrap"]}
    for name, option in (("isolation", "isolation.level"), ("rack", "client.rack")):
        if request.get(name) is not None:
            options[option] = request[name]
    consumer = Consumer({**options, **request["settings"]})
    try:
        _assign(consumer, state)
        while not state.is_done:
            if state.is_all_due():
                _assign(consumer, state)
            if resumed := state.take_resumed():
                consumer.resume([TopicPartition(state.topic, each) for each in resumed])
            began_s = time.monotonic()
            while time.monotonic() < began_s + 0.1 and not state.is_done:
                if (message := consumer.poll(0.05)) is not None:
                    _drive_on(state, consumer, message)
            state.flush()
    finally:
        consumer.close()


def _assign(consumer: Consumer, state: Drive) -> None:
    """Assign the partitions of *state*, each at its position; paused partitions stay paused."""
    consumer.resume([TopicPartition(state.topic, each) for each in state.next])
    consumer.assign([TopicPartition(state.topic, each, state.next[each]) for each in sorted(state.assigned)])
    if paused := [each for each in state.paused() if each in state.assigned]:
        consumer.pause([TopicPartition(state.topic, each) for each in paused])


def _drive_on(state: Drive, consumer: Consumer, message: Message) -> None:
    if (error := message.error()) is not None:
        if error.fatal() or error.code() in _ENDING:
            raise KafkaException(error)
        state.hear(error)
        return
    partition, offset, key, value = message.partition(), message.offset(), message.key(), message.value()
    assert partition is not None
    assert offset is not None
    assert not isinstance(key, str)
    assert not isinstance(value, str)
    for step in state.report(partition, offset, message.timestamp()[1], key, value):
        match step["do"]:
            case "seek":
                if step["partition"] in state.assigned:
                    consumer.seek(TopicPartition(state.topic, step["partition"], step["to"]))
            case "pause":
                state.pause(step)
                if step["partition"] in state.assigned:
                    consumer.pause([TopicPartition(state.topic, step["partition"])])
            case "assign":
                state.assign(step)
                _assign(consumer, state)
            case "commit":
                _drive_commit(state, consumer)


def _drive_commit(state: Drive, consumer: Consumer) -> None:
    offsets = state.to_commit()
    try:
        consumer.commit(
            offsets=[TopicPartition(state.topic, each, offset) for each, offset in offsets.items()],
            asynchronous=False,
        )
    except KafkaException as error:
        state.hear(error)
    else:
        state.committed(offsets)


if __name__ == "__main__":
    serve({each.__name__: each for each in (read, group, produce, create, delete, offsets, drive)})
