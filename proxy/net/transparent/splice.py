"""Forwarding between two connections: each sends the bytes that the other receives, unchanged."""

from typing import Final

import trio

__all__ = ["splice"]

_CHUNK_BYTES: Final = 64 * 1024
"""The maximum number of buffered bytes for each direction; a slow reader slows its sender down."""


async def splice(one: trio.SocketStream, other: trio.SocketStream) -> None:
    """Forward all bytes in both directions until both have ended or either breaks; then close both.

    A half-close is forwarded, too.
    """
    async with one, other:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_pass, one, other)
                nursery.start_soon(_pass, other, one)
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass


async def _pass(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    while chunk := await source.receive_some(_CHUNK_BYTES):
        await sink.send_all(chunk)
    await sink.send_eof()
