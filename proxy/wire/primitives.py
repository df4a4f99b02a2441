"""Scalars, strings, arrays and tagged fields, read in order from one frame."""

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from proxy.errors import MalformedFrame

__all__ = ["Cursor", "write_string", "write_tags", "write_uvarint"]

_I8: Final = struct.Struct(">b")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_LONGEST_STRING: Final = 2**15 - 1
"""The longest string in bytes: brokers refuse longer ones also in the encoding that could express their length."""


class Cursor:
    """A position in a frame that moves forward as values are decoded.

    Layout: big-endian scalars; a string is ``length: i16`` (compact: ``length + 1: uvarint``) and UTF-8 bytes;
            an array is ``count: i32`` (compact: ``count + 1: uvarint``) and its items; null is length -1
            (compact: 0). The message's version decides between the two forms, so the caller passes it.
    Raises: MalformedFrame: the frame ends before the value does, or a length is impossible.
    Source: Kafka protocol guide, "Protocol Primitive Types"; KIP-482.
    """

    __slots__ = ("at", "frame")

    def __init__(self, frame: bytes | memoryview, at: int = 0) -> None:
        self.frame = frame
        self.at = at

    def _scalar(self, form: struct.Struct) -> int:
        try:
            (value,) = form.unpack_from(self.frame, self.at)
        except struct.error:
            raise self._short(form.size) from None
        self.at += form.size
        return int(value)

    def _short(self, wanted: int) -> MalformedFrame:
        left = len(self.frame) - self.at
        return MalformedFrame(f"{wanted} bytes wanted at {self.at}, {left} left of {len(self.frame)}")

    def i8(self) -> int:
        return self._scalar(_I8)

    def i16(self) -> int:
        return self._scalar(_I16)

    def i32(self) -> int:
        return self._scalar(_I32)

    def i64(self) -> int:
        return self._scalar(_I64)

    def uvarint(self) -> int:
        value = shift = 0
        while shift < 35:
            if self.at >= len(self.frame):
                raise self._short(1)
            byte = self.frame[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise MalformedFrame(f"a varint longer than five bytes ends at {self.at}")

    def take(self, size: int) -> bytes | memoryview:
        """Return the next *size* bytes; a view if the frame is one."""
        if not 0 <= size <= len(self.frame) - self.at:
            raise self._short(size)
        taken = self.frame[self.at : self.at + size]
        self.at += size
        return taken

    def skip(self, size: int) -> None:
        """Skip *size* bytes, which are 0 or more."""
        if size > len(self.frame) - self.at:
            raise self._short(size)
        self.at += size

    def length(self, *, flexible: bool, form: struct.Struct = _I32) -> int:
        """Return a length or count; -1 for null."""
        size = self.uvarint() - 1 if flexible else self._scalar(form)
        if size < -1:
            raise MalformedFrame(f"length {size} ends at {self.at}")
        return size

    def count(self, *, flexible: bool, item_bytes: int) -> int:
        """Return the number of items of an array, 0 for null; each takes *item_bytes* or more.

        The check keeps a wrong count from reserving memory for items that cannot be there.
        """
        count = max(self.length(flexible=flexible), 0)
        if count * item_bytes > len(self.frame) - self.at:
            raise self._short(count * item_bytes)
        return count

    def text_length(self, *, flexible: bool) -> int:
        """Return the length of a string in bytes; -1 for null."""
        return self.length(flexible=flexible, form=_I16)

    def nullable_string(self, *, flexible: bool) -> str | None:
        size = self.text_length(flexible=flexible)
        if size < 0:
            return None
        if size > _LONGEST_STRING:
            raise MalformedFrame(f"a string of {size} bytes at {self.at}")
        try:
            return str(self.take(size), "utf-8")
        except UnicodeDecodeError:
            raise MalformedFrame(f"a string that is not UTF-8 ends at {self.at}") from None

    def string(self, *, flexible: bool) -> str:
        value = self.nullable_string(flexible=flexible)
        if value is None:
            raise MalformedFrame(f"null where a string must be, before {self.at}")
        return value

    def tags(self) -> Iterator[tuple[int, bytes | memoryview]]:
        """Yield the tagged fields of a flexible struct: (tag, its bytes). Must be read to the end."""
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            yield tag, self.take(self.uvarint())

    def skip_tags(self) -> None:
        for _ in self.tags():
            pass

    def rest(self) -> int:
        """Return the number of bytes left."""
        return len(self.frame) - self.at

    def done(self) -> None:
        """Raise MalformedFrame unless the frame ends here."""
        if self.rest():
            raise MalformedFrame(f"{self.rest()} bytes too many at {self.at}")


def write_uvarint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def write_string(text: str | None, *, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    encoded = text.encode()
    size = write_uvarint(len(encoded) + 1) if flexible else _I16.pack(len(encoded))
    return size + encoded


def write_tags(tags: Sequence[tuple[int, bytes | memoryview]]) -> bytes:
    parts: list[bytes | memoryview] = [write_uvarint(len(tags))]
    for tag, field in tags:
        parts += (write_uvarint(tag), write_uvarint(len(field)), field)
    return b"".join(parts)
