"""A relay between Sidefetch and brokers that damages responses.

Use: ``python -m tests.adversaries.damaging SEED ROUTES``.

ROUTES is a JSON object with the address of a broker for each port to listen on. Only responses on connections whose
first request has the client id ``adversary`` are damaged, about one in three. Those to others are not, so that all
effects on honest clients are those of Sidefetch. It is a process of its own, as attackers are.
"""

import json
import random
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import trio

from tests.fuzz.mutation import Mutator

__all__ = ["CLIENT_ID", "READY"]

CLIENT_ID: Final = b"adversary"
READY: Final = "ready"
"""The line that the program prints when it listens."""
_DAMAGED: Final = 0.3
_LIES_ABOUT_SIZE: Final = 0.1
_SIZES: Final = (-1, 0, 3, 2**20, 2**31 - 1)
_HEAD: Final = struct.Struct(">ihhih")
"""Size, API key, version, correlation id, and the length of the client id."""
_CHUNK: Final = 1 << 18


async def _relay(seed: int, routes: Mapping[str, tuple[str, int]]) -> None:
    chance = random.Random(seed)
    async with trio.open_nursery() as nursery:
        for port, (host, broker_port) in routes.items():
            serve = partial(_serve, chance, host, broker_port)
            await nursery.start(partial(trio.serve_tcp, serve, int(port), host="127.0.0.1"))
        print(READY, flush=True)


async def _serve(chance: random.Random, host: str, port: int, client: trio.SocketStream) -> None:
    with suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
        async with await trio.open_tcp_stream(host, port) as broker, client:
            first = await client.receive_some(_CHUNK)
            if not first:
                return
            await broker.send_all(first)
            is_damaged = _client_id(first) == CLIENT_ID
            with suppress(BaseExceptionGroup):
                async with trio.open_nursery() as nursery:
                    down = _damage if is_damaged else _forward
                    nursery.start_soon(down, broker, client, nursery.cancel_scope, chance)
                    nursery.start_soon(_forward, client, broker, nursery.cancel_scope, chance)


def _client_id(data: bytes) -> bytes:
    if len(data) < _HEAD.size:
        return b""
    size = _HEAD.unpack_from(data)[-1]
    return bytes(data[_HEAD.size : _HEAD.size + max(size, 0)])


async def _forward(
    source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope, _: random.Random
) -> None:
    while data := await source.receive_some(_CHUNK):
        await sink.send_all(data)
    scope.cancel()


async def _damage(
    source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope, chance: random.Random
) -> None:
    buffer = bytearray()
    while data := await source.receive_some(_CHUNK):
        buffer += data
        while len(buffer) >= 4 and len(buffer) >= (end := 4 + int.from_bytes(buffer[:4])):
            frame = bytes(buffer[4:end])
            del buffer[:end]
            size = len(frame)
            if chance.random() < _DAMAGED:
                frame = Mutator([frame], chance.randrange(2**31)).next()
                size = chance.choice(_SIZES) if chance.random() < _LIES_ABOUT_SIZE else len(frame)
            await sink.send_all(struct.pack(">i", size) + frame)
    scope.cancel()


if __name__ == "__main__":
    trio.run(_relay, int(sys.argv[1]), json.loads(sys.argv[2]))
