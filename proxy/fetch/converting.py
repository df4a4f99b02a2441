"""Conversion of records in fetch responses for clients that cannot read the broker's format or codec (KIP-283).

The limits of the client hold for converted records, too (KIP-74): ``begin_all`` divides the response among its
partitions, in their order.
"""

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from proxy.config import ON, TopicSwitch
from proxy.convert.down import DownConversion, needs_conversion
from proxy.convert.kernel import whole_entries
from proxy.convert.types import ConversionTarget, Converted, Outcome
from proxy.fetch.log import Slice
from proxy.wire.fetch import FetchRequest, PartitionKey, PartitionReply
from proxy.wire.frames import QUICK_BYTES
from proxy.wire.records import Codec

__all__ = ["DEFAULT_POLICY", "CpuClock", "Job", "NoRoom", "Policy", "are_small", "begin_all", "conversion_of"]

_MAGIC_1_VERSION: Final = 2
_MAGIC_2_VERSION: Final = 4
_ZSTD_VERSION: Final = 10
_AHEAD: Final = 2
_AHEAD_BYTES: Final = 128 * 1024
"""Converted records that wait to be sent may take twice the bytes of the original records, or 128 KiB if that is
more. That is enough for the usual growth of batches, but not for zstd, whose batches may grow ten-thousandfold."""
_FEW: Final = 8

CpuClock = Callable[[], float]
"""A function that returns the CPU seconds of the calling thread."""


@attrs.frozen
class Policy:
    """The settings of record conversion, for clients with old Fetch versions."""

    down_conversion: TopicSwitch = ON
    """The topics that clients of Fetch v0 to v3, which need message formats 0 or 1, may read."""
    committed: bool = False
    """Whether clients of Fetch v0 to v3, which have no isolation level, read committed records only."""
    zstd: Codec | None = Codec.GZIP
    """The codec that replaces zstd for clients below Fetch v10; None to answer with an error."""
    lz4_magic0: Codec = Codec.GZIP
    """The codec that replaces LZ4 for clients of message format 0, which have another LZ4 framing."""
    chunk_bytes: int = 128 * 1024
    """The size of the chunks in which records are converted while they are sent."""

    def read_as(self, request: FetchRequest) -> FetchRequest:
        """Return *request*, as read_committed if it is below Fetch v4 and ``committed`` is set."""
        if request.version >= _MAGIC_2_VERSION or not self.committed:
            return request
        return attrs.evolve(request, options=attrs.evolve(request.options, isolation=1))

    def switch_for(self, version: int) -> TopicSwitch:
        """Return the switch of topics that a client of Fetch *version* may read; from v4 on, it is on for all."""
        return ON if version >= _MAGIC_2_VERSION else self.down_conversion

    def target(self, version: int, *, committed: bool) -> ConversionTarget | None:
        """Return the formats and codecs that a client of this Fetch *version* can read; None from v10 on: all.

        *committed*: whether the client reads committed records only; below v4, Sidefetch then drops aborted ones.
        """
        if version >= _ZSTD_VERSION:
            return None
        magic = 2 if version >= _MAGIC_2_VERSION else 1 if version >= _MAGIC_1_VERSION else 0
        filtered = committed and magic < 2  # later clients leave aborted records out themselves
        return ConversionTarget(magic, self.zstd, self.lz4_magic0, self.chunk_bytes, filtered)


DEFAULT_POLICY: Final = Policy()


@attrs.frozen
class NoRoom:
    """The outcome of a job without room in the response, which has records of other partitions.

    Its first converted entry, or all its records if they need no conversion, would exceed the limit of the
    partition or the rest of that of the response.
    """


@attrs.define
class Job:
    """The records of one partition of a response, with their conversion if they need one."""

    key: PartitionKey
    reply: PartitionReply
    """The partition's response, with the original records."""
    found: Slice
    """These records in their log."""
    max_bytes: int
    """The client's limit for the partition."""
    conversion: DownConversion | None
    """None if the records are sent as they are."""
    outcome: Outcome | NoRoom | None = None
    """The result of ``begin_all``; None before."""

    @property
    def taken(self) -> tuple[int, int]:
        """The size of the original records that the job uses up, and the offset behind them.

        With ``Converted``, they are fewer than those of ``reply`` if the conversion ends at a limit, at damage or
        at a refused codec. With ``NothingForClient``, ``IncompleteEntry`` or an error, they are all of them, though
        the response has none. Sidefetch reads on behind them only after ``NothingForClient``; after the others, the
        client's next fetch decides.
        """
        records = memoryview(self.reply.records) if self.conversion is None else self.conversion.source
        if len(records) == len(self.reply.records):
            return len(records), self.found.next_offset
        return len(records), whole_entries(records, len(records)).next_offset


def conversion_of(reply: PartitionReply, offset: int, target: ConversionTarget | None) -> DownConversion | None:
    """Return the conversion of the records of *reply* to *target*; None if they need none.

    *offset*: the client's fetch offset. Earlier records are left out, unless they share an entry with later ones
    that is compressed or is copied unchanged.
    """
    records = memoryview(reply.records)
    if target is None or not needs_conversion(records, offset, target):
        return None
    return DownConversion(records, offset, target, reply.aborted or ())


def are_small(conversions: Sequence[DownConversion]) -> bool:
    """Return whether ``begin_all`` may run on the event loop, since *conversions* are small.

    It may if the conversion loops are compiled, there are at most 8 conversions, and the first entry of none must
    be decompressed; or if their records have at most 16 KiB in total and no zstd. Otherwise a thread is used.
    """
    if len(conversions) <= _FEW and all(each.is_quick for each in conversions):
        return True
    is_little = sum(len(each.source) for each in conversions) <= QUICK_BYTES
    return is_little and not any(each.may_burst for each in conversions)


def begin_all(jobs: Sequence[Job], max_bytes: int, cpu_s: CpuClock, *, is_cut: bool = False) -> None:
    """Begin the conversions of *jobs* and set the ``outcome`` of each. Callable from any thread.

    Args: max_bytes: the client's limit for all records of the response.
          is_cut: whether output that exceeds a limit is sent even behind other partitions, as below Fetch v3;
              otherwise the outcome of its job is ``NoRoom``. The output is the first converted entry, or all
              records of a job without conversion.
    Cost: for each job, up to the conversion of one batch, or of all records if they are a chunk or less. Its CPU
        time is added to ``conversion.counts``. The kept output of all jobs together is limited to twice the
        original bytes, or 128 KiB if that is more. Other output is dropped, and converted again if it is sent.
    """
    left = max(_AHEAD * sum(len(job.reply.records) for job in jobs), _AHEAD_BYTES)
    used_bytes = 0
    for job in jobs:
        conversion, limit_bytes = job.conversion, min(job.max_bytes, max_bytes - used_bytes)
        if conversion is None:
            job.outcome = Converted(len(job.reply.records))
        else:
            began_s = cpu_s()
            job.outcome = conversion.begin(limit_bytes)
            conversion.counts.cpu_us += round((cpu_s() - began_s) * 1e6)
        if isinstance(job.outcome, Converted):
            if job.outcome.size > limit_bytes and used_bytes and not is_cut:
                job.outcome = NoRoom()
            else:
                used_bytes += job.outcome.size
        if conversion is not None:
            if conversion.held_bytes > left or isinstance(job.outcome, NoRoom):
                conversion.drop_output()
            left -= conversion.held_bytes
