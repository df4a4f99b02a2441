"""What an entry of a log becomes for a target, by its header alone."""

from enum import Enum, auto

from proxy.convert.aborted import Aborted
from proxy.convert.types import Target
from proxy.errors import BadRecords, ErrorCode
from proxy.wire.records import Codec, Entry

__all__ = ["Kind", "is_copied", "is_plain", "kind_of"]


class Kind(Enum):
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


def is_copied(entry: Entry, target: Target) -> bool:
    """Whether it stays what it is, if anything."""
    if target.magic == 2:
        return entry.magic < 2 or entry.codec != Codec.ZSTD
    return entry.magic <= target.magic


def is_plain(entry: Entry) -> bool:
    """Whether it holds records, or is one, as they are."""
    return entry.codec == Codec.NONE and not entry.is_control and entry.records > 0


def kind_of(entry: Entry, log: memoryview, offset: int, target: Target, aborted: Aborted) -> Kind:
    """What *entry* of *log* becomes for a client at *offset*; to be asked about each entry once, in order.

    Raises: BadRecords: its codec is refused, or it is a control batch without a type.
    """
    if target.magic < 2 and entry.last_offset < offset:
        aborted.has(entry, log)
        return Kind.NOTHING
    if is_copied(entry, target):
        return Kind.COPY
    if aborted.has(entry, log):
        return Kind.ABORTED
    if target.magic < 2 and (entry.is_control or not entry.records):
        return Kind.NOTHING
    if entry.codec == Codec.NONE:
        return Kind.MESSAGES
    if target.codec(entry.codec) is None:
        raise BadRecords(ErrorCode.unsupported_compression_type, "its codec is refused", offset=entry.base_offset)
    return Kind.WRAPPER
