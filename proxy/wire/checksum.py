"""The checksum of record batches, CRC-32C."""

__all__ = ["crc32c"]


def crc32c(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """Return the CRC-32C of *data* and all bytes before it; *before* is the checksum of those bytes, 0 for none."""
    # Imported here: the package looks up its own version, for which Python loads its mail parser.
    import crc32c

    return crc32c.crc32c(data, before)
