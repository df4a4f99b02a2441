"""A reader with the requests of Kafka 0.9 (2015): Metadata v0, ListOffsets v0, Fetch v1, and message format 0.

It sends no ApiVersions request. Kafka 4 has dropped ListOffsets v0 and Fetch v1 (KIP-896) and the message format
(KIP-724).
"""

import io
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final

import attrs
from aiokafka.protocol.api import RequestHeader_v1
from aiokafka.protocol.fetch import FetchRequest_v1
from aiokafka.protocol.metadata import MetadataRequest_v0
from aiokafka.protocol.offset import OffsetRequest_v0
from aiokafka.record.memory_records import MemoryRecords

from proxy.demo.client import KafkaConnection, connect
from proxy.wire.frames import with_size

__all__ = ["OldReadResult", "read_as_in_2015"]

_EARLIEST: Final = -2
_WAIT_MS: Final = 100
_FETCH_BYTES: Final = 1 << 20
_NAMES: Final = {1: "Fetch", 2: "ListOffsets", 3: "Metadata"}


@attrs.frozen
class OldReadResult:
    """The result of ``read_as_in_2015``: the number of messages read, and the reason if it stopped early."""

    messages: int
    failure: str = ""
    """The reason why it stopped early; empty if it has read enough."""


async def read_as_in_2015(bootstrap: str, topic: str, partitions: Iterable[int], enough: int) -> OldReadResult:
    """Read *partitions* of *topic* from their earliest offsets until *enough* messages are read in total.

    It stops early at the end of the partitions, and when a broker refuses a request or closes the connection; then
    the result has the reason.

    Raises: OSError: no broker can be reached, or one does not answer.
    """
    messages = 0
    try:
        for address, offsets in (await _earliest_offsets(bootstrap, topic, partitions)).items():
            async with connect(address) as raw:
                while messages < enough:
                    came = await _fetch(raw, topic, offsets)
                    messages += came
                    if not came:
                        break
    except _Failed as why:
        return OldReadResult(messages, str(why))
    return OldReadResult(messages, "" if messages >= enough else "it found no more to read")


class _Failed(Exception):
    pass


async def _earliest_offsets(bootstrap: str, topic: str, partitions: Iterable[int]) -> dict[str, dict[int, int]]:
    """Return the earliest offset of each partition, by the address of its leader and by partition.

    Raises: _Failed: ListOffsets is refused.
    """
    async with connect(bootstrap) as raw:
        metadata = await _call(raw, MetadataRequest_v0([topic]))
    at = {node: f"{host}:{port}" for node, host, port in metadata.brokers}
    ((_, _, found),) = metadata.topics
    leaders = {partition: at[leader] for _, partition, leader, _, _ in found}
    asked: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for partition in partitions:
        asked[leaders[partition]].append((partition, _EARLIEST, 1))
    led: dict[str, dict[int, int]] = {}
    for address, asks in asked.items():
        async with connect(address) as raw:
            answer = await _call(raw, OffsetRequest_v0(-1, [(topic, asks)]))
        ((_, partition_offsets),) = answer.topics
        for _, error, _ in partition_offsets:
            _check("ListOffsets v0", error)
        led[address] = {partition: offsets[0] for partition, _, offsets in partition_offsets}
    return led


async def _fetch(raw: KafkaConnection, topic: str, offsets: dict[int, int]) -> int:
    """Fetch once from *offsets*, which are by partition; advance them, and return the number of messages.

    Raises: _Failed: the fetch is refused, or the messages are not of format 0.
    """
    asked = [(partition, offset, _FETCH_BYTES) for partition, offset in offsets.items()]
    answer = await _call(raw, FetchRequest_v1(-1, _WAIT_MS, 1, [(topic, asked)]))
    messages = 0
    for _, partitions in answer.topics:
        for partition, error, _, message_set in partitions:
            _check("Fetch v1", error)
            batches = MemoryRecords(message_set or b"")
            while (batch := batches.next_batch()) is not None:
                for message in batch:
                    if message.timestamp is not None:
                        raise _Failed("it was given messages of a later format")
                    offsets[partition] = message.offset + 1
                    messages += 1
    return messages


def _check(api: str, error: int) -> None:
    if error:
        raise _Failed(f"error {error} to {api}")


async def _call(raw: KafkaConnection, request: Any) -> Any:
    payload = RequestHeader_v1(request, correlation_id=1, client_id="reader-of-2015").encode() + request.encode()
    await raw.send_frame(with_size(payload))
    frame = await raw.receive_frame()
    if frame is None:
        raise _Failed(f"the broker hangs up at {_NAMES[request.API_KEY]} v{request.API_VERSION}")
    return request.RESPONSE_TYPE.decode(io.BytesIO(frame[4:]))
