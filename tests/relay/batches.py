"""Partitions whose records are batches of equal size."""

import struct
from typing import Any

from proxy.wire.records import batch_of
from tests.relay.playbook import Part, client_responses

__all__ = ["BATCH", "SMALL", "batches", "given", "part"]

BATCH = 1000
"""Bytes of each batch, which has ten records."""


SMALL = 2 * BATCH
"""The limit of a client that gets two batches at a time."""


def batches(first: int, number: int) -> bytes:
    """Return batches of ten records each, from offset *first* on."""
    made = bytearray()
    for base in range(first, first + 10 * number, 10):
        batch = bytearray(batch_of(bytes(BATCH - 61), 0, 10, 0, 0))
        struct.pack_into(">q", batch, 0, base)
        made += batch
    return bytes(made)


def part(first: int, number: int, end: int = 1000, **more: Any) -> Part:
    """Return a reply with *number* batches from offset *first* on; the high watermark is *end*."""
    return Part(0, end, batches(first, number), **more)


def given(commands: Any, *, version: int = 11) -> dict[int, tuple[int, int]]:
    """Return (base offset, batches) of each partition that the one response has records of."""
    (answer,) = client_responses(commands, version=version)
    parts = [part for topic in answer.responses for part in topic.partitions if part.records]
    return {
        part.partition_index: (struct.unpack_from(">q", part.records)[0], len(part.records) // BATCH)
        for part in parts
    }
