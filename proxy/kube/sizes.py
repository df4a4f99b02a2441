"""The resources of the sidecar's container, computed from one option: ``--memory``.

====================  ====================  ===================================================================
resource              value                 reason
====================  ====================  ===================================================================
memory limit          2 x memory + 96 MiB   54 MiB are used when idle, 16 MiB by rows of a ledger that cannot be
                                            written, the rest is memory that Python's allocator keeps;
                                            ``--memory`` is for the brokers' responses, and as much again for
                                            clients' requests and for records that are being converted
``--request-memory``  memory / 2            unless given: the default of 128 MiB is for a Sidefetch that has a
                                            machine to itself
memory request        96 MiB                the permanent use; budgets are for peaks
CPU request           50m                   a core forwards 1 GB/s: 50 MB/s when the node is full
CPU limit             none                  throttling adds its waits to those of every client, and has no
                                            benefit on a node that is not full
====================  ====================  ===================================================================

The chart uses the same formula (``helm/templates/_helpers.tpl``); one test compares both, and another one reads
under that limit as greedily as clients can.
"""

from typing import Final

__all__ = ["CPU_REQUEST", "MEMORY_REQUEST", "limit_bytes", "request_memory_bytes"]

MEMORY_REQUEST: Final = "96Mi"
"""The memory request of the sidecar's container, in Kubernetes' notation of quantities."""
CPU_REQUEST: Final = "50m"
"""The CPU request of the sidecar's container, in the same notation."""

_MIB: Final = 1024**2
_BESIDE_BYTES: Final = 96 * _MIB


def limit_bytes(memory_bytes: int) -> int:
    """Return the memory limit of the sidecar's container, in bytes, for ``--memory`` *memory_bytes*.

    It is twice that, rounded up to whole MiB, plus 96 MiB.
    """
    whole_mib = -(-memory_bytes // _MIB)
    return 2 * whole_mib * _MIB + _BESIDE_BYTES


def request_memory_bytes(memory_bytes: int) -> int:
    """Return the sidecar's default of ``--request-memory``, in bytes: half of *memory_bytes* (``--memory``)."""
    return memory_bytes // 2
