"""Targets and outcomes of conversions."""

import attrs

from proxy.convert.codecs import DECOMPRESSED_BYTES
from proxy.wire.records import Codec

__all__ = [
    "CodecRefused",
    "ConversionCounts",
    "ConversionTarget",
    "Converted",
    "DamagedEntry",
    "IncompleteEntry",
    "NothingForClient",
    "Outcome",
]


@attrs.frozen
class ConversionTarget:
    """The formats that a client can read."""

    magic: int
    """0: Fetch v0-1. 1: v2-3. 2: v4-9, which have batches, but not zstd."""
    zstd: Codec | None = Codec.GZIP
    """The codec in place of zstd; None to refuse zstd."""
    lz4_magic0: Codec = Codec.GZIP
    """The codec in place of LZ4 in magic 0: LZ4 with Kafka's old checksum, or one that all clients can read."""
    chunk_bytes: int = 128 * 1024
    """The source bytes that are converted at a time, at least one batch (KIP-283)."""
    committed: bool = False
    """Whether to drop records of aborted transactions, in magic 0 and 1: clients that read batches do so
    themselves."""
    decompressed_bytes: int = DECOMPRESSED_BYTES
    """The most that one batch may decompress to; one that exceeds it is treated as damaged."""

    def codec(self, codec: int) -> int | None:
        """Return the codec in place of *codec*; None if it is refused."""
        written: int | None = self.zstd if codec == Codec.ZSTD else codec
        return self.lz4_magic0 if written == Codec.LZ4 and self.magic == 0 else written


@attrs.frozen
class Converted:
    """The conversion yields messages of this total size."""

    size: int


@attrs.frozen
class NothingForClient:
    """The entries have no message for the client, which could not get past them: fetch on for it."""

    next_offset: int
    """The offset behind them."""


@attrs.frozen
class DamagedEntry:
    """The first entry for the client is damaged: CORRUPT_MESSAGE (2)."""

    offset: int
    """The offset at which that entry begins."""
    why: str


@attrs.frozen
class CodecRefused:
    """The first entry for the client has a codec that is refused: UNSUPPORTED_COMPRESSION_TYPE (76)."""

    offset: int


@attrs.frozen
class IncompleteEntry:
    """There is no complete entry at or beyond the offset: return an empty set, or fetch more bytes."""


Outcome = Converted | NothingForClient | DamagedEntry | CodecRefused | IncompleteEntry


@attrs.define
class ConversionCounts:
    """The counts of a conversion so far."""

    messages: int = 0
    """Converted messages, without those in copied entries."""
    source_bytes: int = 0
    """Bytes of the entries that were decoded, whatever their treatment."""
    out_bytes: int = 0
    """Bytes of delivered output, padding included."""
    padding_bytes: int = 0
    """Bytes of padding, to fill the committed size."""
    cut_bytes: int = 0
    """Bytes of converted output beyond the committed size."""
    unread_bytes: int = 0
    """Bytes of the source that were not decoded because the size was used up: the client asks for them again."""
    headers_dropped: int = 0
    """Dropped record headers."""
    aborted_batches: int = 0
    """Dropped batches of aborted transactions."""
    aborted_records: int = 0
    cpu_us: int = 0
    """CPU time of the conversion threads, as the caller measures it."""
    recompressions: int = 0
    """Entries that were decompressed and compressed again."""
