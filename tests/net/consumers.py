"""Old consumers of a proxy's cluster, each with a name and a connection for each broker."""

from typing import Any

import trio

from proxy.demo.broker import KEYS
from proxy.demo.client import KafkaConnection
from proxy.demo.messages import encode_request, read_response
from tests.net.proxied import Proxied, ask

__all__ = ["consume", "fetched"]


async def fetched(
    connection: KafkaConnection, client_id: str, offsets: dict[int, int], version: int, **options: Any
) -> Any:
    """Return the records of a fetch as *client_id*."""
    frame = encode_request(KEYS["fetch"], version, 1, client_id, ask(offsets, **options))
    await connection.send_frame(frame)
    answer = await connection.receive_frame()
    assert answer is not None
    return read_response(KEYS["fetch"], version, answer)[1]


async def consume(
    it: Proxied, client_id: str, node: int, partitions: list[int], *, topic: str = "t", version: int = 4
) -> None:
    """Read for ever."""
    offsets = dict.fromkeys(partitions, 0)
    async with it.client(node) as connection:
        while True:
            body = await fetched(connection, client_id, offsets, version, topic=topic, max_wait=100)
            for each in body.responses[0].partitions:
                offsets[each.partition_index] = each.high_watermark if each.high_watermark >= 0 else 0
            await trio.sleep(0.02)
