"""Conversion of records between formats: down for fetches of old clients, up for produce requests of old clients.

It does no I/O and shares no state, so that a large conversion can run in a worker thread. The loops over records
are in ``kernel``, compiled if there is a compiler. Each conversion is of the records of one partition; ``versions``
handles requests of old versions.

``down.DownConversion`` turns a fetched log into messages, lazily (KIP-283)::

    begin --> Converted(size) --> next_chunk ... next_chunk --> None
          --> NothingForClient(next offset)    control batches, empty batches: the caller fetches from there
          --> DamagedEntry, CodecRefused       errors 2 and 76
          --> IncompleteEntry                  no complete entry

``up.to_batches`` turns a produced message set into batches, at once.
"""

from proxy.convert.down import DownConversion, needs_conversion
from proxy.convert.types import (
    CodecRefused,
    ConversionCounts,
    ConversionTarget,
    Converted,
    DamagedEntry,
    IncompleteEntry,
    NothingForClient,
    Outcome,
)
from proxy.convert.up import to_batches

__all__ = [
    "CodecRefused",
    "ConversionCounts",
    "ConversionTarget",
    "Converted",
    "DamagedEntry",
    "DownConversion",
    "IncompleteEntry",
    "NothingForClient",
    "Outcome",
    "needs_conversion",
    "to_batches",
]
