"""Two connections made one: what comes from either is sent to the other, as it is."""

from typing import Final

import trio

__all__ = ["splice"]

_CHUNK_BYTES: Final = 64 * 1024
"""Held of each direction at most; who does not read is not read for."""


async def splice(one: trio.SocketStream, other: trio.SocketStream) -> None:
    """Pass all that comes, both ways, until both have ended or either breaks; both are closed then.

    A half-close is passed on like all else.
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
