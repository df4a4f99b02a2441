"""Decoding and encoding of the protocol's primitive types: scalars, strings, array counts and tagged fields."""

import struct
import sys
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
_MOST_ITEMS: Final = 1_000_000
_MOST_TAGS: Final = 10_000


class Cursor:
    """A decoder of one frame's values, in their order: each method reads at position ``at`` and moves it forward.

    Layout: big-endian scalars; a string is ``length: i16`` (compact: ``length + 1: uvarint``) and UTF-8 bytes;
            an array is ``count: i32`` (compact: ``count + 1: uvarint``) and its items; null is length -1
            (compact: 0). The message's version decides between the two forms: callers pass *flexible* for compact.
    Raises: MalformedFrame: by each method if the frame ends before the value does, or a length is impossible. As in
            brokers from 4.4 on, an array of more than 1,000,000 items and a section of more than 10,000 tagged
            fields are, too.
    Source: Kafka protocol guide, "Protocol Primitive Types"; KIP-482.
    """

    __slots__ = ("at", "frame", "tags_left")

    def __init__(self, frame: bytes | memoryview, at: int = 0) -> None:
        self.frame = frame
        self.at = at
        self.tags_left = sys.maxsize
        """The number of tagged fields that may follow in all sections together; more are malformed. No limit at
        first."""

    def _scalar(self, form: struct.Struct) -> int:
        try:
            (value,) = form.unpack_from(self.frame, self.at)
        except struct.error:
            raise self._too_short(form.size) from None
        self.at += form.size
        return int(value)

    def _too_short(self, wanted: int) -> MalformedFrame:
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
                raise self._too_short(1)
            byte = self.frame[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise MalformedFrame(f"a varint longer than five bytes ends at {self.at}")

    def take(self, size: int) -> bytes | memoryview:
        """Return the next *size* bytes and move behind them; the result is a view if the frame is a memoryview."""
        if not 0 <= size <= len(self.frame) - self.at:
            raise self._too_short(size)
        taken = self.frame[self.at : self.at + size]
        self.at += size
        return taken

    def skip(self, size: int) -> None:
        """Move forward by *size* bytes without decoding them; *size* must not be negative."""
        if size > len(self.frame) - self.at:
            raise self._too_short(size)
        self.at += size

    def length(self, *, flexible: bool, form: struct.Struct = _I32) -> int:
        """Decode the length of bytes or the count of an array; -1 for null. *form* applies if not *flexible*."""
        size = self.uvarint() - 1 if flexible else self._scalar(form)
        if size < -1:
            raise MalformedFrame(f"length {size} ends at {self.at}")
        return size

    def count(self, *, flexible: bool, item_bytes: int) -> int:
        """Decode the number of items of an array, 0 for null; the items follow in the frame.

        Each item has at least *item_bytes* bytes: a number for which the rest of the frame is too short raises
        MalformedFrame, before callers reserve memory for so many items. So does one above 1,000,000.
        """
        return max(self.nullable_count(flexible=flexible, item_bytes=item_bytes), 0)

    def nullable_count(self, *, flexible: bool, item_bytes: int) -> int:
        """Decode the number of items of an array as ``count`` does; -1 for null."""
        count = self.length(flexible=flexible)
        if count * item_bytes > len(self.frame) - self.at:
            raise self._too_short(count * item_bytes)
        if count > _MOST_ITEMS:
            raise MalformedFrame(f"an array of {count} items at {self.at}, {_MOST_ITEMS} are allowed")
        return count

    def text_length(self, *, flexible: bool) -> int:
        """Decode the length of a string in bytes; -1 for null."""
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
        """Yield (tag, bytes) for each tagged field at the cursor, which is behind them once all are consumed."""
        count, allowed = self.uvarint(), min(_MOST_TAGS, self.tags_left)
        if count > allowed:
            raise MalformedFrame(f"{count} tagged fields at {self.at}, {allowed} are allowed")
        self.tags_left -= count
        for _ in range(count):
            tag = self.uvarint()
            yield tag, self.take(self.uvarint())

    def skip_tags(self) -> None:
        if self.at < len(self.frame) and not self.frame[self.at]:  # as in nearly all sections; much faster
            self.at += 1
            return
        for _ in self.tags():
            pass

    def count_rest(self) -> int:
        """Return the number of bytes from the cursor to the end of the frame."""
        return len(self.frame) - self.at

    def check_end(self) -> None:
        """Verify that no bytes are left between the cursor and the end of the frame. Raises: MalformedFrame."""
        if self.count_rest():
            raise MalformedFrame(f"{self.count_rest()} bytes too many at {self.at}")


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
