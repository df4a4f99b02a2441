"""What tests need that speak single messages: a connection, and record batches."""

from proxy.demo.batches import Batch, Record, encode_batch, split
from proxy.demo.client import Connection as Raw
from proxy.demo.client import connect as dial

__all__ = ["Raw", "batches_in", "dial", "value_batch"]


def value_batch(*values: bytes, timestamp_ms: int = 1_700_000_000_000) -> bytes:
    """One uncompressed batch."""
    return encode_batch([Record(value, timestamp_ms=timestamp_ms) for value in values])


def batches_in(records: bytes | None) -> list[Batch]:
    """The batches of a fetch answer."""
    return list(split(records or b""))
