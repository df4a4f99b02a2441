"""What an entry of a log becomes for a target, by its header alone."""

from enum import Enum, auto

from proxy.convert.aborted import Aborted
from proxy.convert.types import ConversionTarget
from proxy.errors import BadRecords, ErrorCode
from proxy.wire.records import Codec, Entry

__all__ = ["Treatment", "is_copied", "is_plain", "treatment_of"]


class Treatment(Enum):
    """Each costs more than the one before."""

    NOTHING = auto()
    """A control batch, one that compaction has emptied, or something older than what was asked for."""
    ABORTED = auto()
    """Nothing either: a batch of an aborted transaction."""
    COPY = auto()
    """What it was."""
    MESSAGES = auto()
    """One for each record; many such entries are converted in one go."""
    WRAPPER = auto()
    """One entry, compressed again."""


def is_copied(entry: Entry, target: ConversionTarget) -> bool:
    """Whether it stays what it is, if anything."""
    if target.magic == 2:
        return entry.magic < 2 or entry.codec != Codec.ZSTD
    return entry.magic <= target.magic


def is_plain(entry: Entry) -> bool:
    """Whether it holds records, or is one, as they are."""
    return entry.codec == Codec.NONE and not entry.is_control and entry.records > 0


def treatment_of(
    entry: Entry, log: memoryview, offset: int, target: ConversionTarget, aborted: Aborted
) -> Treatment:
    """What *entry* of *log* becomes for a client at *offset*; to be asked about each entry once, in order.

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
