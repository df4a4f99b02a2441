"""The parameters, outcomes and counts of down-conversions."""

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
    """The record format that an old client can read, and the settings of the conversion to it."""

    magic: int
    """The record format. 0: for Fetch v0-1. 1: for v2-3. 2: for v4-9, whose clients read batches, but not zstd."""
    zstd: Codec | None = Codec.GZIP
    """The codec in place of zstd; None to refuse zstd."""
    lz4_magic0: Codec = Codec.GZIP
    """The codec in place of LZ4 in magic 0: LZ4 with Kafka's old checksum, or one that all clients can read."""
    chunk_bytes: int = 128 * 1024
    """The number of source bytes that are converted at a time, but at least one batch (KIP-283)."""
    committed: bool = False
    """Whether to drop records of aborted transactions, in magic 0 and 1: clients that read batches do so
    themselves."""
    decompressed_bytes: int = DECOMPRESSED_BYTES
    """The largest decompressed size of a batch in bytes; a batch that exceeds it is treated as damaged."""

    def codec(self, codec: int) -> int | None:
        """Return the codec that replaces *codec* for this client, which may be the same; None if it is refused."""
        written: int | None = self.zstd if codec == Codec.ZSTD else codec
        return self.lz4_magic0 if written == Codec.LZ4 and self.magic == 0 else written


@attrs.frozen
class Converted:
    """The outcome of a conversion that has output for the client: its total *size*, before it is converted."""

    size: int
    """The number of bytes of the output; ``DownConversion.next_chunk`` returns exactly as many."""


@attrs.frozen
class NothingForClient:
    """The outcome of a conversion without any message for the client, as if there are only control batches.

    An old client does not advance without a message, so the caller fetches again from *next_offset* on its behalf.
    """

    next_offset: int
    """The offset behind the entries."""


@attrs.frozen
class DamagedEntry:
    """The outcome of a conversion that finds damage before any message for the client; error CORRUPT_MESSAGE."""

    offset: int
    """The offset at which the damaged batch or message begins."""
    why: str
    """A description of the damage."""


@attrs.frozen
class CodecRefused:
    """The outcome of a conversion whose first batch for the client has a codec that the settings refuse.

    The client gets the error UNSUPPORTED_COMPRESSION_TYPE (76).
    """

    offset: int
    """The offset at which that batch begins."""


@attrs.frozen
class IncompleteEntry:
    """The outcome of a conversion whose source has no complete batch or message at or beyond the client's offset.

    The caller returns an empty record set, or fetches more bytes.
    """


Outcome = Converted | NothingForClient | DamagedEntry | CodecRefused | IncompleteEntry
"""The results of ``DownConversion.begin``."""


@attrs.define
class ConversionCounts:
    """The counts of one partition's down-conversion so far: messages, bytes and dropped data."""

    messages: int = 0
    """Converted messages, without those in copied entries."""
    source_bytes: int = 0
    """Bytes of the source entries that are finished: converted, copied or dropped."""
    out_bytes: int = 0
    """Bytes of delivered output, padding included."""
    padding_bytes: int = 0
    """Bytes of padding, to fill the size that ``begin`` returned."""
    cut_bytes: int = 0
    """Bytes of converted output that were cut off, because they exceeded the size that ``begin`` returned."""
    unread_bytes: int = 0
    """Bytes of the source that were not decoded because the size was used up: the client asks for them again."""
    headers_dropped: int = 0
    """Dropped record headers."""
    aborted_batches: int = 0
    """Dropped batches of aborted transactions."""
    aborted_records: int = 0
    """Records in these batches."""
    cpu_us: int = 0
    """CPU time of the conversion in microseconds; the caller measures and adds it."""
    recompressions: int = 0
    """Entries that were decompressed and compressed again."""
