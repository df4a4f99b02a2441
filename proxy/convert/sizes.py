"""The output size of a down-conversion before all of it is converted, because a response states its size first.

The first entry (batch or message) with output is measured elsewhere; this module adds up the entries behind it.
Uncompressed entries are measured by a walk over their records that writes nothing. Compressed ones are estimated.
"""

from contextlib import suppress
from typing import Final, NamedTuple, assert_never

from proxy.convert import kernel
from proxy.convert.aborted import AbortedBatchFinder
from proxy.convert.treatment import Treatment, treatment_of
from proxy.convert.types import ConversionTarget
from proxy.errors import BadRecords
from proxy.wire.records import BATCH_HEADER_BYTES, MESSAGE_BYTES, Entry, entries

__all__ = ["MARGIN", "Behind", "Growth", "size_behind"]

_SAVED: Final = BATCH_HEADER_BYTES - MESSAGE_BYTES[1]
"""The bytes by which a wrapper is smaller than a batch with the same content."""


MARGIN: Final = 32
"""The margin that is added to an estimate is the estimate divided by this. An estimate that is a little too high
wastes few bytes; one that is too low cuts off a whole batch, which is fetched again."""


class Behind(NamedTuple):
    """The converted size of all entries behind the first one with output; exact if none of them is compressed."""

    size: int
    """The number of bytes of their output."""
    end: int
    """The position in the source behind the last entry that counts."""
    is_exact: bool
    """Whether no compressed entry was estimated."""


class Growth:
    """An estimate of the converted size of compressed batches, extrapolated from the first one's converted size.

    KIP-283 assumes that batches keep their size. But they grow in proportion to the number of records, because the
    checksum and timestamp of each message do not compress well; and they shrink, as from LZ4 to gzip, in proportion
    to their size.
    """

    __slots__ = ("_each", "_ratio", "_saved")

    def __init__(self, first: Entry, size: int | None, target: ConversionTarget) -> None:
        """Create the estimate from *first*, a compressed batch, and its converted *size* in bytes.

        Args: size: None if no compressed batch was converted; then batches count as keeping their size.
        """
        self._saved = _SAVED if target.magic < 2 else 0
        self._each, self._ratio = 0.0, 1.0
        if size is not None:
            before = first.size - self._saved
            self._each = max(size - before, 0) / max(first.records, 1)
            self._ratio = min(size / before, 1.0)

    def size_of(self, entry: Entry) -> int:
        """Return an estimate, a little too high, of the converted size of *entry*, a compressed batch, in bytes."""
        guess = int((entry.size - self._saved) * self._ratio + self._each * entry.records)
        return guess + guess // MARGIN


def size_behind(
    first: Entry,
    log: memoryview,
    offset: int,
    target: ConversionTarget,
    aborted: AbortedBatchFinder,
    growth: Growth,
    limit_bytes: int,
) -> Behind:
    """Return the converted size of the entries of *log* behind *first*; the sizes of compressed ones are estimated.

    It counts up to the first entry that exceeds *limit_bytes*, is visibly damaged or has a refused codec: there the
    conversion ends. Checksums are not verified.

    Args: offset:  the offset that the client requested; earlier records do not count.
          aborted: the state of aborted transactions behind *first*; it is changed.
          growth:  the estimate for compressed batches.
    """
    size, end, is_exact = 0, first.end, True
    with suppress(BadRecords):
        while (entry := next(entries(log, end), None)) is not None:
            match treatment_of(entry, log, offset, target, aborted):
                case Treatment.MESSAGES:
                    takes = aborted.is_over
                    done = kernel.measure_entries(log, entry.at, len(log), offset, target.magic, takes, False)
                    if size + done.size > limit_bytes:
                        done = kernel.measure_entries(log, entry.at, entry.end, offset, target.magic, takes, False)
                    if size + done.size > limit_bytes:
                        break
                    size += done.size
                    end = done.end
                    if done.damage:
                        break
                    continue
                case Treatment.COPY:
                    more = entry.size
                case Treatment.WRAPPER:
                    more = growth.size_of(entry)
                    is_exact = False
                case Treatment.NOTHING | Treatment.ABORTED:
                    more = 0
                case never:
                    assert_never(never)
            if size + more > limit_bytes:
                break
            size += more
            end = entry.end
    return Behind(size, end, is_exact)
