"""The resources of the sidecar's container, from its options, and the options that follow from ``--memory``.

=====================  ====================  ==================================================================
resource or option     value                 reason
=====================  ====================  ==================================================================
memory limit           the sum of all that   ``--memory`` for the brokers' responses; 2.5 x ``--request-memory``
                       is limited, + 96 MiB  for clients' requests, the partitions of fetches, and (half) fetch
                                             sessions; 128 KiB x ``--max-connections``. 54 of the 96 MiB are used
                                             when idle, 16 by rows of a ledger that cannot be written, and 26 are
                                             memory that Python's allocator keeps
``--request-memory``   memory / 2            unless given: the default of 128 MiB is for a Sidefetch that has a
                                             machine to itself
``--max-connections``  memory / 128 KiB, at  unless given: as many as take the memory of the brokers' responses
                       most 2,000            once more; the default of 2,000 needs 250 MiB
memory request         96 MiB                the permanent use; budgets are for peaks
CPU request            50m                   a core forwards 1 GB/s: 50 MB/s when the node is full
CPU limit              none                  throttling adds its waits to those of every client, and has no
                                             benefit on a node that is not full
=====================  ====================  ==================================================================

A connection takes up to 115 kB: measured for 512 clients that wait in a fetch of 50 partitions. Records that are
being converted or decompressed have no share of their own: they take what the others leave.

The chart uses the same formulas (``helm/templates/_helpers.tpl``); one test compares both, and others read under
that limit as greedily as clients can, and open as many connections as they may.
"""

from typing import Final

from proxy.config import LimitsConfig

__all__ = ["CPU_REQUEST", "MEMORY_REQUEST", "limit_bytes", "max_connections", "request_memory_bytes"]

MEMORY_REQUEST: Final = "96Mi"
"""The memory request of the sidecar's container, in Kubernetes' notation of quantities."""
CPU_REQUEST: Final = "50m"
"""The CPU request of the sidecar's container, in the same notation."""

_MIB: Final = 1024**2
_BESIDE_BYTES: Final = 96 * _MIB
_CONNECTION_BYTES: Final = 128 * 1024
_MOST_CONNECTIONS: Final = LimitsConfig().max_connections


def limit_bytes(memory_bytes: int, limits: LimitsConfig) -> int:
    """Return the memory limit of the sidecar's container, in bytes and rounded up to whole MiB.

    *memory_bytes* is ``--memory``; *limits* has ``--request-memory`` and ``--max-connections``.
    """
    of_requests = 5 * limits.request_memory_bytes // 2
    used = memory_bytes + of_requests + _CONNECTION_BYTES * limits.max_connections + _BESIDE_BYTES
    return -(-used // _MIB) * _MIB


def request_memory_bytes(memory_bytes: int) -> int:
    """Return the sidecar's default of ``--request-memory``, in bytes: half of *memory_bytes* (``--memory``)."""
    return memory_bytes // 2


def max_connections(memory_bytes: int) -> int:
    """Return the sidecar's default of ``--max-connections`` for ``--memory`` *memory_bytes*."""
    return min(memory_bytes // _CONNECTION_BYTES, _MOST_CONNECTIONS)
