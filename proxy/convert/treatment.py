"""The treatment of a batch or message in a down-conversion, decided without decoding its records."""

from enum import Enum, auto

from proxy.convert.aborted import AbortedBatchFinder
from proxy.convert.types import ConversionTarget
from proxy.errors import BadRecords, ErrorCode
from proxy.wire.records import Codec, Entry

__all__ = ["Treatment", "is_copied", "is_plain", "treatment_of"]


class Treatment(Enum):
    """The treatments of a batch or message in a down-conversion, from dropping to recompression, by rising cost."""

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
    """Return whether the client can read *entry* as it is, so that it is copied unless it is dropped."""
    if target.magic == 2:
        return entry.magic < 2 or entry.codec != Codec.ZSTD
    return entry.magic <= target.magic


def is_plain(entry: Entry) -> bool:
    """Return whether *entry* is an uncompressed message or an uncompressed batch with records.

    Control batches, and batches that compaction has left without records, do not count.
    """
    return entry.codec == Codec.NONE and not entry.is_control and entry.records > 0


def treatment_of(
    entry: Entry, log: memoryview, offset: int, target: ConversionTarget, aborted: AbortedBatchFinder
) -> Treatment:
    """Return the treatment of *entry* of *log* for a client that requested *offset*.

    Call this once for each entry of the log, in order, since it changes the state *aborted*.

    Args:   target:  the formats that the client can read.
            aborted: the state of aborted transactions at this entry.
    Raises: BadRecords: *target* refuses the entry's codec, or the entry is a control batch whose key has no type.
    """
    if target.magic < 2 and entry.last_offset < offset:
        aborted.next_is_aborted(entry, log)
        return Treatment.NOTHING
    if is_copied(entry, target):
        return Treatment.COPY
    if aborted.next_is_aborted(entry, log):
        return Treatment.ABORTED
    if target.magic < 2 and (entry.is_control or not entry.records):
        return Treatment.NOTHING
    if entry.codec == Codec.NONE:
        return Treatment.MESSAGES
    if target.codec(entry.codec) is None:
        raise BadRecords(ErrorCode.unsupported_compression_type, "its codec is refused", offset=entry.base_offset)
    return Treatment.WRAPPER
