"""The sampling of fetches for the ledger: pseudo-random and reproducible."""

from typing import Final
from zlib import crc32

__all__ = ["Sampler"]

_64_BITS: Final = 2**64 - 1


class Sampler:
    """A sampler that selects the fetches of one process that get a ledger row.

    The choice is a hash of the process (*proxy_id*), connection, kind and number of a fetch, so it can be
    reproduced. Without *proxy_id* in the hash, the first fetch would be selected in every sidecar of a fleet, or in
    none.
    """

    def __init__(self, share: float, proxy_id: str) -> None:
        """Create a sampler that selects a *share* (0 to 1) of the fetches."""
        self._below = round(share * 2**64)
        self._seed = crc32(proxy_id.encode()) << 32
        self.weight = 1 / share if share else 1.0
        """The number of fetches for which each selected fetch stands."""

    def picks(self, connection_id: int, kind: str, sequence: int) -> bool:
        """Return whether a fetch is in the sample. Equal arguments give equal results.

        Args: kind:     ``exchange`` for a client fetch, ``fetch`` for an upstream fetch.
              sequence: the number of the fetch among those of its connection and kind.
        """
        if self._below > _64_BITS:
            return True
        connection = _mixed(self._seed + connection_id * 2 + (kind == "fetch"))
        return _mixed(connection + sequence) < self._below


def _mixed(value: int) -> int:
    """Return a 64-bit hash in which each bit depends on every bit of *value* (SplitMix64's last step)."""
    value = (value + 0x9E3779B97F4A7C15) & _64_BITS
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _64_BITS
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _64_BITS
    return value ^ value >> 31
