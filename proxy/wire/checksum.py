"""The checksum of record batches."""

__all__ = ["crc32c"]


def crc32c(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """Return the CRC-32C of *data*, continued from *before*, the checksum of the bytes before it."""
    # Imported here: the package looks up its own version, for which Python loads its mail parser.
    import crc32c

    return crc32c.crc32c(data, before)
