"""What a container with Sidefetch in it is given, from the one thing that is chosen for it: ``--memory``.

====================  ====================  ===================================================================
what                  is                    because
====================  ====================  ===================================================================
memory limit          2 x memory + 96 MiB   54 MiB are taken idle, 16 MiB by rows of a ledger that cannot be
                                            written, the rest is what Python's allocator does not give back;
                                            ``--memory`` is for what brokers have sent, and as much again for
                                            clients' requests and for records in the midst of conversion
``--request-memory``  memory / 2            unless given: the default of 128 MiB is for a Sidefetch that has a
                                            machine to itself
memory request        96 MiB                what is taken all the time; budgets are for peaks
CPU request           50m                   a core passes on 1 GB/s: 50 MB/s when the node is full
CPU limit             none                  throttling adds its waits to those of every client, and saves nobody
                                            anything on a node that is not full
====================  ====================  ===================================================================

The chart reckons by the same formula (``helm/templates/_helpers.tpl``); a test holds both together, and another one
reads under that limit as greedily as clients can.
"""

from typing import Final

__all__ = ["CPU_REQUEST", "MEMORY_REQUEST", "limit_bytes", "request_memory_bytes"]

MEMORY_REQUEST: Final = "96Mi"
"""As Kubernetes writes quantities."""
CPU_REQUEST: Final = "50m"

_MIB: Final = 1024**2
_BESIDE_BYTES: Final = 96 * _MIB


def limit_bytes(memory_bytes: int) -> int:
    """The container's memory limit for ``--memory``, in whole MiB."""
    whole_mib = -(-memory_bytes // _MIB)
    return 2 * whole_mib * _MIB + _BESIDE_BYTES


def request_memory_bytes(memory_bytes: int) -> int:
    """What ``--request-memory`` is to be beside that, where nothing else is said."""
    return memory_bytes // 2
