"""Conversion of records in fetch responses for clients that cannot read the broker's format or codec (KIP-283)."""

from collections.abc import Callable
from typing import Final

import attrs

from proxy.config import ON, TopicSwitch
from proxy.convert.down import DownConversion, needs_conversion
from proxy.convert.types import ConversionTarget, Outcome
from proxy.wire.fetch import FetchRequest, PartitionKey, PartitionReply
from proxy.wire.frames import QUICK_BYTES
from proxy.wire.records import Codec

__all__ = ["DEFAULT_POLICY", "CpuClock", "Job", "Policy", "are_small", "begin_all"]

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
        """Return *request*, with isolation level read_committed if ``committed`` holds for its Fetch version."""
        if request.version >= _MAGIC_2_VERSION or not self.committed:
            return request
        return attrs.evolve(request, options=attrs.evolve(request.options, isolation=1))

    def switch_for(self, version: int) -> TopicSwitch:
        """Return the topics that a client of this Fetch *version* may read; from v4 on, all."""
        return ON if version >= _MAGIC_2_VERSION else self.down_conversion

    def target(self, version: int, *, committed: bool) -> ConversionTarget | None:
        """Return the formats and codecs that a client of this Fetch *version* can read; None from v10 on: all.

        *committed*: whether the client reads committed records only.
        """
        if version >= _ZSTD_VERSION:
            return None
        magic = 2 if version >= _MAGIC_2_VERSION else 1 if version >= _MAGIC_1_VERSION else 0
        filtered = committed and magic < 2  # later clients leave aborted records out themselves
        return ConversionTarget(magic, self.zstd, self.lz4_magic0, self.chunk_bytes, filtered)


DEFAULT_POLICY: Final = Policy()


@attrs.define
class Job:
    """The conversion of the records of one partition of a response."""

    key: PartitionKey
    reply: PartitionReply
    """The partition's response, with the original records."""
    conversion: DownConversion
    outcome: Outcome | None = None
    """The result of ``begin_all``; None before."""

    @classmethod
    def of(cls, key: PartitionKey, reply: PartitionReply, offset: int, target: ConversionTarget) -> "Job | None":
        """Return the conversion of the records of *reply* to *target*; None if they need none.

        *offset*: the client's fetch offset; records before it are left out, unless they share a compressed or
        copied entry with later ones.
        """
        records = memoryview(reply.records)
        if not needs_conversion(records, offset, target):
            return None
        return cls(key, reply, DownConversion(records, offset, target, reply.aborted or ()))


def are_small(jobs: tuple[Job, ...]) -> bool:
    """Return whether *jobs* are cheap enough for ``begin_all`` on the event loop rather than in a thread.

    A few jobs without decompression take no longer than the switch to a thread and back.
    """
    if len(jobs) <= _FEW and all(job.conversion.is_quick for job in jobs):
        return True
    is_little = sum(len(job.reply.records) for job in jobs) <= QUICK_BYTES
    return is_little and not any(job.conversion.may_burst for job in jobs)


def begin_all(jobs: tuple[Job, ...], cpu_s: CpuClock) -> None:
    """Begin the conversion of each job and set its ``outcome``; callable from any thread.

    Cost: up to the conversion of one batch for each job; its CPU time is added to ``conversion.counts``. Converted
        records of up to twice the original bytes, or 128 KiB if that is more, are kept until they are sent; the
        rest is dropped, and converted again when it is sent.
    """
    left = max(_AHEAD * sum(len(job.reply.records) for job in jobs), _AHEAD_BYTES)
    for job in jobs:
        began_s = cpu_s()
        job.outcome = job.conversion.begin()
        job.conversion.counts.cpu_us += round((cpu_s() - began_s) * 1e6)
        if job.conversion.held_bytes > left:
            job.conversion.drop_output()
        left -= job.conversion.held_bytes
