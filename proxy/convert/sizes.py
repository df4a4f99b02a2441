"""How many bytes the entries behind the first messages of a set will become, as far as it can be known cheaply.

What is not compressed is known by a walk over its records that writes nothing. What is compressed is guessed.
"""

from contextlib import suppress
from typing import Final, NamedTuple, assert_never

from proxy.convert import kernel
from proxy.convert.aborted import Aborted
from proxy.convert.treatment import Treatment, treatment_of
from proxy.convert.types import ConversionTarget
from proxy.errors import BadRecords
from proxy.wire.records import BATCH_HEADER_BYTES, MESSAGE_BYTES, Entry, entries

__all__ = ["MARGIN", "Behind", "Growth", "size_behind"]

_SAVED: Final = BATCH_HEADER_BYTES - MESSAGE_BYTES[1]
"""Bytes by which a wrapper is smaller than a batch with the same inside."""


MARGIN: Final = 32
"""A guess is raised by this part of it: one that is a little too high wastes that little, one that is a little too
low cuts a whole batch off, which is fetched again."""


class Behind(NamedTuple):
    """What follows the first messages."""

    size: int
    end: int
    """Of the last complete entry in the source."""
    is_exact: bool


class Growth:
    """What compressed batches become, as far as the first one tells.

    KIP-283 takes them to stay as large as they are. But where they grow, they grow with the number of records: the
    checksum and time that each message has for itself do not compress away. Where they shrink, as they do from LZ4
    to gzip, they shrink in proportion.
    """

    __slots__ = ("_each", "_ratio", "_saved")

    def __init__(self, first: Entry, size: int | None, target: ConversionTarget) -> None:
        """*size*: what *first*, a compressed one, has become; None where it is none."""
        self._saved = _SAVED if target.magic < 2 else 0
        self._each, self._ratio = 0.0, 1.0
        if size is not None:
            before = first.size - self._saved
            self._each = max(size - before, 0) / max(first.records, 1)
            self._ratio = min(size / before, 1.0)

    def size_of(self, entry: Entry) -> int:
        """A guess, rather too high."""
        guess = int((entry.size - self._saved) * self._ratio + self._each * entry.records)
        return guess + guess // MARGIN


def size_behind(
    first: Entry, log: memoryview, offset: int, target: ConversionTarget, aborted: Aborted, growth: Growth
) -> Behind:
    """What is behind *first* will come to.

    It counts to where the conversion will end: to the first entry whose damage shows without a conversion, or whose
    codec is refused. Checksums are not looked at.
    Args: aborted: as it is behind *first*; it is changed.
    """
    size, end, is_exact = 0, first.end, True
    with suppress(BadRecords):
        while (entry := next(entries(log, end), None)) is not None:
            match treatment_of(entry, log, offset, target, aborted):
                case Treatment.MESSAGES:
                    takes = aborted.is_over
                    done = kernel.measure_entries(log, entry.at, len(log), offset, target.magic, takes, False)
                    size += done.size
                    end = done.end
                    if done.damage:
                        break
                    continue
                case Treatment.COPY:
                    size += entry.size
                case Treatment.WRAPPER:
                    size += growth.size_of(entry)
                    is_exact = False
                case Treatment.NOTHING | Treatment.ABORTED:
                    pass
                case never:
                    assert_never(never)
            end = entry.end
    return Behind(size, end, is_exact)
