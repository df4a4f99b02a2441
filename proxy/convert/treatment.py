"""The treatment of an entry of a log for a target, decided by its header alone."""

from enum import Enum, auto

from proxy.convert.aborted import Aborted
from proxy.convert.types import ConversionTarget
from proxy.errors import BadRecords, ErrorCode
from proxy.wire.records import Codec, Entry

__all__ = ["Treatment", "is_copied", "is_plain", "treatment_of"]


class Treatment(Enum):
    """The treatments, by ascending cost."""

    NOTHING = auto()
    """Dropped: a control batch, a batch emptied by compaction, or an entry before the requested offset."""
    ABORTED = auto()
    """Dropped: a batch of an aborted transaction."""
    COPY = auto()
    """Copied unchanged."""
    MESSAGES = auto()
    """Converted to one message for each record; many such entries are converted together."""
    WRAPPER = auto()
    """Converted to one entry, compressed again."""


def is_copied(entry: Entry, target: ConversionTarget) -> bool:
    """Return whether it is copied, unless it is dropped."""
    if target.magic == 2:
        return entry.magic < 2 or entry.codec != Codec.ZSTD
    return entry.magic <= target.magic


def is_plain(entry: Entry) -> bool:
    """Return whether it is an uncompressed batch with records, or an uncompressed message."""
    return entry.codec == Codec.NONE and not entry.is_control and entry.records > 0


def treatment_of(
    entry: Entry, log: memoryview, offset: int, target: ConversionTarget, aborted: Aborted
) -> Treatment:
    """Return the treatment of *entry* for a client at *offset*; call it once for each entry, in order.

    Raises: BadRecords: its codec is refused, or it is a control batch without a type.
    """
    if target.magic < 2 and entry.last_offset < offset:
        aborted.has(entry, log)
        return Treatment.NOTHING
    if is_copied(entry, target):
        return Treatment.COPY
    if aborted.has(entry, log):
        return Treatment.ABORTED
    if target.magic < 2 and (entry.is_control or not entry.records):
        return Treatment.NOTHING
    if entry.codec == Codec.NONE:
        return Treatment.MESSAGES
    if target.codec(entry.codec) is None:
        raise BadRecords(ErrorCode.unsupported_compression_type, "its codec is refused", offset=entry.base_offset)
    return Treatment.WRAPPER
