"""The converted size of the entries behind the first messages of a set, exact or estimated.

Uncompressed entries are measured by a walk over their records that writes nothing. Compressed ones are estimated.
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
"""The bytes by which a wrapper is smaller than a batch with the same content."""


MARGIN: Final = 32
"""The divisor of the margin that is added to estimates: one that is a little too high wastes that little, one that
is too low cuts off a whole batch, which is fetched again."""


class Behind(NamedTuple):
    """The size of the entries behind the first messages."""

    size: int
    end: int
    """The end of the last complete entry in the source."""
    is_exact: bool


class Growth:
    """The growth of compressed batches, extrapolated from the first one.

    KIP-283 assumes that they keep their size. But growth follows the number of records: the checksum and timestamp
    of each message do not compress away. Shrinking, as from LZ4 to gzip, is proportional.
    """

    __slots__ = ("_each", "_ratio", "_saved")

    def __init__(self, first: Entry, size: int | None, target: ConversionTarget) -> None:
        """Create it from *first*, a compressed batch, and its converted *size*; None if there is none."""
        self._saved = _SAVED if target.magic < 2 else 0
        self._each, self._ratio = 0.0, 1.0
        if size is not None:
            before = first.size - self._saved
            self._each = max(size - before, 0) / max(first.records, 1)
            self._ratio = min(size / before, 1.0)

    def size_of(self, entry: Entry) -> int:
        """Return an estimate, rather too high."""
        guess = int((entry.size - self._saved) * self._ratio + self._each * entry.records)
        return guess + guess // MARGIN


def size_behind(
    first: Entry, log: memoryview, offset: int, target: ConversionTarget, aborted: Aborted, growth: Growth
) -> Behind:
    """Return the converted size of the entries behind *first*.

    It counts up to the end of the conversion: the first entry that is visibly damaged, or whose codec is refused.
    Checksums are not verified.

    Args: aborted: the state behind *first*; it is changed.
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
