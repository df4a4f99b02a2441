"""Forwarding of bytes between two connections, in both directions and unchanged."""

from typing import Final

import trio

__all__ = ["splice"]

_CHUNK_BYTES: Final = 64 * 1024
"""The maximum number of buffered bytes for each direction; a slow reader slows its sender down."""


async def splice(one: trio.SocketStream, other: trio.SocketStream) -> None:
    """Send the bytes received on each connection over the other one, until both have ended or one breaks.

    If one side ends its direction (half-close), that is forwarded, and the other direction continues. At the end,
    both connections are closed. A broken connection raises no error.
    """
    async with one, other:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_forward, one, other)
                nursery.start_soon(_forward, other, one)
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass


async def _forward(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    while chunk := await source.receive_some(_CHUNK_BYTES):
        await sink.send_all(chunk)
    await sink.send_eof()
