"""Records of one format as those of another: what a fetch brings for old clients, what old clients produce.

It is pure and shares nothing, so that a large conversion can run in a worker thread. The loops over records are in
``kernel``, compiled where there is a compiler. It never imports trio, and knows no requests: only the records of
one partition. Requests of old versions are what ``versions`` is about.

``down.Conversion`` turns a fetched log into messages, lazily (KIP-283)::

    begin --> Converted(size) --> next_chunk ... next_chunk --> None
          --> Nothing(next offset)    control batches, emptied batches: fetch on for the client
          --> Damaged, Refused        errors 2 and 76
          --> Incomplete              not one whole entry

``up.to_batches`` turns what was produced into batches, at once.
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
