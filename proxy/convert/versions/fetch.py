"""Fetch (API key 1) v0 to v3: answered like every fetch, with records converted to the version's format."""

from typing import Final

from proxy.convert.versions.upgrade import Upgrade
from proxy.wire.apis import ApiKey

__all__ = ["UPGRADES"]

_SINCE: Final = 4

UPGRADES: Final = tuple(
    Upgrade(
        "Fetch",
        ApiKey.FETCH,
        version,
        _SINCE,
        adds="read_uncommitted, and a limit for the whole response" if version < 3 else "read_uncommitted",
        loses="record headers, control records, producer ids",
        steps=None,
    )
    for version in range(_SINCE)
)
