"""Which records a client cannot read as a broker keeps them, and what it is given for them."""

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
"""Of what is converted before it is sent, so many times the records, or so many bytes, are kept. That is room for
what batches grow by, but for those in zstd that may become tens of thousands times as large."""
_FEW: Final = 8

CpuClock = Callable[[], float]
"""The CPU seconds of the thread that asks."""


@attrs.frozen
class Policy:
    """What clients get that cannot read everything."""

    down_conversion: TopicSwitch = ON
    """Of which topics clients of the old formats may read at all."""
    committed: bool = False
    """Whether clients that cannot choose read committed records only."""
    zstd: Codec | None = Codec.GZIP
    """What it becomes for those that cannot read it; None to refuse."""
    lz4_magic0: Codec = Codec.GZIP
    chunk_bytes: int = 128 * 1024

    def read_as(self, request: FetchRequest) -> FetchRequest:
        """*request*, with the isolation that its client could not choose."""
        if request.version >= _MAGIC_2_VERSION or not self.committed:
            return request
        return attrs.evolve(request, options=attrs.evolve(request.options, isolation=1))

    def switch_for(self, version: int) -> TopicSwitch:
        """Of which topics a client of this Fetch *version* may be told anything."""
        return ON if version >= _MAGIC_2_VERSION else self.down_conversion

    def target(self, version: int, *, committed: bool) -> ConversionTarget | None:
        """What a client of this Fetch *version* can read; None for everything."""
        if version >= _ZSTD_VERSION:
            return None
        magic = 2 if version >= _MAGIC_2_VERSION else 1 if version >= _MAGIC_1_VERSION else 0
        filtered = committed and magic < 2  # later clients leave aborted records out themselves
        return ConversionTarget(magic, self.zstd, self.lz4_magic0, self.chunk_bytes, filtered)


DEFAULT_POLICY: Final = Policy()


@attrs.define
class Job:
    """The records of one partition's answer, to be converted."""

    key: PartitionKey
    reply: PartitionReply
    conversion: DownConversion
    outcome: Outcome | None = None

    @classmethod
    def of(cls, key: PartitionKey, reply: PartitionReply, offset: int, target: ConversionTarget) -> "Job | None":
        """*offset*: from which on the client wants records. None if it can read them as they are."""
        records = memoryview(reply.records)
        if not needs_conversion(records, offset, target):
            return None
        return cls(key, reply, DownConversion(records, offset, target, reply.aborted or ()))


def are_small(jobs: tuple[Job, ...]) -> bool:
    """Whether they may be begun at once: nobody else waits for long then.

    A few that need nothing decompressed take as long as a way to a thread and back.
    """
    if len(jobs) <= _FEW and all(job.conversion.is_quick for job in jobs):
        return True
    is_little = sum(len(job.reply.records) for job in jobs) <= QUICK_BYTES
    return is_little and not any(job.conversion.may_burst for job in jobs)


def begin_all(jobs: tuple[Job, ...], cpu_s: CpuClock) -> None:
    """Find out what becomes of each. May take as long as converting a batch for each; any thread will do.

    Cost: memory for what one batch decompresses to and becomes, and, until it is sent, for twice the bytes of the
    records or 128 KiB: what is more is converted once more when its turn comes.
    """
    left = max(_AHEAD * sum(len(job.reply.records) for job in jobs), _AHEAD_BYTES)
    for job in jobs:
        began_s = cpu_s()
        job.outcome = job.conversion.begin()
        job.conversion.counts.cpu_us += round((cpu_s() - began_s) * 1e6)
        if job.conversion.held_bytes > left:
            job.conversion.let_go()
        left -= job.conversion.held_bytes
