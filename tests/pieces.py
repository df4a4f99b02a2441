"""Frames in pieces, put together."""

from collections.abc import Iterable, Iterator

from proxy.wire.frames import Piece

__all__ = ["joined"]


def joined(pieces: Iterable[Piece]) -> bytes:
    """Return the bytes of all *pieces*; lazy ones are made now."""
    return b"".join(_made(pieces))


def _made(pieces: Iterable[Piece]) -> Iterator[bytes | bytearray | memoryview]:
    for piece in pieces:
        if isinstance(piece, bytes | memoryview):
            yield piece
        else:
            size = 0
            while (chunk := piece.next_chunk()) is not None:
                size += len(chunk)
                yield chunk
            assert size == len(piece)
