"""A connection for single messages, and record batches."""

from proxy.demo.batches import BatchInfo, DemoRecord, encode_batch, split_batches
from proxy.demo.client import KafkaConnection as Raw
from proxy.demo.client import connect as dial

__all__ = ["Raw", "batches_in", "dial", "value_batch"]


def value_batch(*values: bytes, timestamp_ms: int = 1_700_000_000_000) -> bytes:
    """One uncompressed batch."""
    return encode_batch([DemoRecord(value, timestamp_ms=timestamp_ms) for value in values])


def batches_in(records: bytes | None) -> list[BatchInfo]:
    """The batches of a fetch answer."""
    return list(split_batches(records or b""))
