"""What a conversion is asked for, and what comes of it."""

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
    """What a client can read."""

    magic: int
    """0: Fetch v0-1. 1: v2-3. 2: v4-9, which know batches, but not zstd."""
    zstd: Codec | None = Codec.GZIP
    """What zstd becomes; None: it is refused."""
    lz4_magic0: Codec = Codec.GZIP
    """What LZ4 becomes in magic 0: stays LZ4, with Kafka's old checksum, or what every reader of it reads."""
    chunk_bytes: int = 128 * 1024
    """Convert so many bytes of the source at a time, and one batch at least; as KIP-283 has it."""
    committed: bool = False
    """Leave out the records of aborted transactions; for magic 0 and 1: clients of batches do so themselves."""
    decompressed_bytes: int = DECOMPRESSED_BYTES
    """The most that one batch may decompress to; one that has more is taken for damaged."""

    def codec(self, codec: int) -> int | None:
        """What is written for *codec*; None: it is refused."""
        written: int | None = self.zstd if codec == Codec.ZSTD else codec
        return self.lz4_magic0 if written == Codec.LZ4 and self.magic == 0 else written


@attrs.frozen
class Converted:
    """There are messages: so many bytes are to be told to the client."""

    size: int


@attrs.frozen
class NothingForClient:
    """There are entries, but none with a message for the client: it cannot get past them, so fetch on for it."""

    next_offset: int
    """Beyond the offset that was asked for."""


@attrs.frozen
class DamagedEntry:
    """The first entry that the client would get is damaged: CORRUPT_MESSAGE (2)."""

    offset: int
    """Where that entry begins."""
    why: str


@attrs.frozen
class CodecRefused:
    """The first entry that the client would get has a codec that is refused: UNSUPPORTED_COMPRESSION_TYPE (76)."""

    offset: int


@attrs.frozen
class IncompleteEntry:
    """There is no complete entry at or beyond the offset: an empty set, or a larger fetch."""


Outcome = Converted | NothingForClient | DamagedEntry | CodecRefused | IncompleteEntry


@attrs.define
class ConversionCounts:
    """What a conversion has done so far, in messages and bytes."""

    messages: int = 0
    """Converted; not those that were copied within their entries."""
    source_bytes: int = 0
    """Of the entries that were looked at, whatever became of them."""
    out_bytes: int = 0
    """Handed out, padding included."""
    padding_bytes: int = 0
    """Handed out to fill the size that was committed to."""
    cut_bytes: int = 0
    """Converted, but beyond the size that was committed to."""
    unread_bytes: int = 0
    """Of the source, not looked at since the size was used up: the client asks for them again."""
    headers_dropped: int = 0
    """Headers of records."""
    aborted_batches: int = 0
    """Left out, of aborted transactions."""
    aborted_records: int = 0
    cpu_us: int = 0
    """Of the threads that it took, as whoever runs it measures that."""
    recompressions: int = 0
    """Entries that were decompressed and compressed again."""
