"""aiokafka: asyncio, full fetches that name themselves version 11 and make no sessions."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from tests.clients.drive import Drive, seek_or_pause
from tests.clients.talk import CHUNK_BYTES, MAX_BYTES, Command, Talk, from_text, serve


def _consumer(request: dict[str, Any], *topics: str, **more: Any) -> Any:
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=request["bootstrap"],
        client_id=request.get("client_id", "aiokafka"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=request.get("isolation", "read_uncommitted"),
        max_partition_fetch_bytes=request.get("chunk_bytes", CHUNK_BYTES),
        fetch_max_bytes=request.get("max_bytes", MAX_BYTES),
        fetch_max_wait_ms=request.get("wait_ms", 500),
        **more,
    )


async def _poll_until(talk: Talk, consumer: Any, count: int | None, *, commit: bool) -> None:
    while (count is None or talk.count < count) and not talk.has_commands():
        polled = await consumer.getmany(timeout_ms=200)
        for records in polled.values():
            for each in records:
                talk.record(each.partition, each.offset, each.timestamp, each.key, each.value, each.headers)
        if commit and polled:
            after = {partition: records[-1].offset + 1 for partition, records in polled.items()}
            await consumer.commit(after)
            talk.say(committed={partition.partition: offset for partition, offset in after.items()})


async def read(talk: Talk, request: dict[str, Any]) -> None:
    async with _consumer(request) as consumer:
        consumer.assign([TopicPartition(request["topic"], each) for each in request["partitions"]])
        await _poll_until(talk, consumer, request["count"], commit=False)


async def group(talk: Talk, request: dict[str, Any]) -> None:
    in_group = {"group_id": request["group"], "session_timeout_ms": 6_000, "heartbeat_interval_ms": 500}
    async with _consumer(request, request["topic"], **in_group) as consumer:
        await _poll_until(talk, consumer, request["count"], commit=True)


async def produce(_: Talk, request: dict[str, Any]) -> list[list[int]]:
    codec = request.get("codec", "none")
    async with AIOKafkaProducer(
        bootstrap_servers=request["bootstrap"],
        acks="all",
        linger_ms=20,
        compression_type=None if codec == "none" else codec,
    ) as producer:
        sent = [
            await producer.send(
                request["topic"],
                partition=partition,
                timestamp_ms=timestamp_ms,
                key=from_text(key),
                value=from_text(value),
                headers=[(name, from_text(data)) for name, data in headers],
            )
            for partition, _, timestamp_ms, key, value, headers in request["records"]
        ]
        places = [await future for future in sent]
    return [[place.partition, place.offset] for place in places]


async def create(_: Talk, request: dict[str, Any]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=request["bootstrap"])
    await admin.start()
    try:
        await admin.create_topics([NewTopic(request["topic"], request["partitions"], 2)])
    finally:
        await admin.close()


async def delete(_: Talk, request: dict[str, Any]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=request["bootstrap"])
    await admin.start()
    try:
        await admin.delete_topics([request["topic"]])
    finally:
        await admin.close()


async def offsets(_: Talk, request: dict[str, Any]) -> dict[int, list[int]]:
    async with _consumer(request, request["topic"]) as consumer:
        partitions = [
            TopicPartition(request["topic"], each)
            for each in sorted(consumer.partitions_for_topic(request["topic"]))
        ]
        first = await consumer.beginning_offsets(partitions)
        last = await consumer.end_offsets(partitions)
    return {each.partition: [first[each], last[each]] for each in partitions}


async def drive(talk: Talk, request: dict[str, Any]) -> None:
    state = Drive(talk, request)
    options = {"group_id": request.get("group"), "isolation_level": request.get("isolation", "read_uncommitted")}
    options |= {"client_id": request.get("client_id", "aiokafka"), "enable_auto_commit": False}
    places = {each: TopicPartition(state.topic, each) for each in state.next}
    async with AIOKafkaConsumer(
        bootstrap_servers=request["bootstrap"], **options, **request["settings"]
    ) as consumer:
        _assign(consumer, state, places)
        while not state.is_done:
            if state.is_all_due():
                _assign(consumer, state, places)
            consumer.resume(*(places[each] for each in state.take_resumed()))
            assign_again = False
            for records in (await consumer.getmany(timeout_ms=100)).values():
                for record in records:
                    at = record.partition, record.offset, record.timestamp, record.key, record.value
                    steps = [*state.report(*at)]
                    for step in steps:
                        assign_again |= await _take(step, state, consumer, places)
                    if any(step["do"] == "seek" for step in steps):
                        break
            if assign_again:
                _assign(consumer, state, places)
            state.flush()


def _assign(consumer: Any, state: Drive, places: dict[int, Any]) -> None:
    """Assign the partitions of *state*, each at its position, because aiokafka forgets the positions before."""
    consumer.assign([places[each] for each in sorted(state.assigned)])
    for each in state.assigned:
        consumer.seek(places[each], state.next[each])
    consumer.pause(*(places[each] for each in state.paused() if each in state.assigned))


async def _take(step: dict[str, Any], state: Drive, consumer: Any, places: dict[int, Any]) -> bool:
    """Return whether to assign anew, once all that was polled has been reported."""
    match step["do"]:
        case "seek" | "pause":
            seek_or_pause(step, state, consumer, places)
        case "assign":
            state.assign(step)
            return True
        case "commit":
            offsets = state.to_commit()
            try:
                await consumer.commit({places[each]: offset for each, offset in offsets.items()})
            except KafkaError as error:
                state.hear(error)
            else:
                state.committed(offsets)
    return False


def _blocking(command: Callable[[Talk, dict[str, Any]], Awaitable[object]]) -> Command:
    async def run(talk: Talk, request: dict[str, Any]) -> object:
        return await command(talk, request)

    return lambda talk, request: asyncio.run(run(talk, request))


if __name__ == "__main__":
    serve({each.__name__: _blocking(each) for each in (read, group, produce, create, delete, offsets, drive)})
