"""The checksum of record batches."""

__all__ = ["crc32c"]


def crc32c(data: bytes | bytearray | memoryview, before: int = 0) -> int:
    """CRC-32C of *data*, behind what came to *before*."""
    # Not with the module: the package asks for its own version, for which Python loads all that reads mail.
    import crc32c

    return crc32c.crc32c(data, before)
