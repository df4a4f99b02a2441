"""The table of all request versions that Sidefetch upgrades, by API key and version."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from itertools import groupby
from types import MappingProxyType
from typing import Final

from proxy.convert.versions.upgrade import Upgrade
from proxy.wire.apis import ApiKey, ApiRanges

__all__ = ["TARGETS", "UPGRADES", "markdown_table", "serves"]

_APIS: Final[Mapping[int, tuple[int, str]]] = {
    ApiKey.PRODUCE: (3, "produce"),
    ApiKey.FETCH: (4, "fetch"),
    ApiKey.LIST_OFFSETS: (1, "list_offsets"),
    ApiKey.OFFSET_COMMIT: (2, "offset_commit"),
    ApiKey.OFFSET_FETCH: (1, "offset_fetch"),
    ApiKey.JOIN_GROUP: (2, "join_group"),
    ApiKey.CREATE_TOPICS: (2, "topics"),
    ApiKey.DELETE_TOPICS: (1, "topics"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, "offset_for_leader_epoch"),
    ApiKey.DESCRIBE_ACLS: (1, "acls"),
    ApiKey.CREATE_ACLS: (1, "acls"),
    ApiKey.DELETE_ACLS: (1, "acls"),
    ApiKey.DESCRIBE_CONFIGS: (1, "describe_configs"),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, "same_layout"),
    ApiKey.DESCRIBE_LOG_DIRS: (1, "same_layout"),
    ApiKey.CREATE_DELEGATION_TOKEN: (1, "same_layout"),
    ApiKey.RENEW_DELEGATION_TOKEN: (1, "same_layout"),
    ApiKey.EXPIRE_DELEGATION_TOKEN: (1, "same_layout"),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: (1, "same_layout"),
}
"""The version to which all lower ones are upgraded, and the module with the upgrade, by API key."""

TARGETS: Final[Mapping[tuple[int, int], int]] = MappingProxyType(
    {(int(key), version): to for key, (to, _) in _APIS.items() for version in range(to)}
)
"""The version to which each version is upgraded, by API key and version."""


class _Upgrades(Mapping[tuple[int, int], Upgrade]):
    """A mapping that imports an API's module on first use: importing all would take a fifth of the start."""

    def __getitem__(self, version: tuple[int, int]) -> Upgrade:
        return _load_upgrades(version[0])[version]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(TARGETS)

    def __len__(self) -> int:
        return len(TARGETS)

    def __contains__(self, version: object) -> bool:
        return version in TARGETS


UPGRADES: Final[Mapping[tuple[int, int], Upgrade]] = _Upgrades()
"""The upgrade of each version, by API key and version."""


@cache
def _load_upgrades(key: int) -> Mapping[tuple[int, int], Upgrade]:
    _, name = _APIS[key]
    upgrades: Sequence[Upgrade] = import_module(f"proxy.convert.versions.{name}").UPGRADES
    return {(upgrade.key, upgrade.version): upgrade for upgrade in upgrades}


_PRODUCE_SINCE: Final = 3


def serves(broker: ApiRanges, key: int, version: int) -> bool:
    """Return whether a broker serves a version of an API itself, so that no upgrade is needed.

    Produce below v3 is an exception: Kafka 4 reports these versions, for clients that look for them, but closes the
    connection when it gets one (KAFKA-18659). It removed them together with Fetch v0, so they count as served
    unless the broker reports Fetch without v0.

    Args: broker: the versions that the broker reports in ApiVersions.
          key:    the API key.
    """
    versions = broker.get(key)
    if versions is None or version not in versions:
        return False
    fetch_range = broker.get(ApiKey.FETCH)
    has_lost_old_records = fetch_range is not None and fetch_range.first > 0
    return key != ApiKey.PRODUCE or version >= _PRODUCE_SINCE or not has_lost_old_records


def markdown_table() -> str:
    """Return the table of all upgrades in ``proxy/convert/README.md``, in Markdown.

    Each row has an API, its versions, the version to which they are upgraded, and the differences. Versions of an
    API with equal differences share a row.
    """
    rows = ["| API | versions | upgraded to | added | lost |", "|---|---|---|---|---|"]
    for _, some in groupby(UPGRADES.values(), key=lambda upgrade: (upgrade.key, upgrade.adds, upgrade.loses)):
        upgrades = list(some)
        upgrade = upgrades[0]
        rows.append(f"| {upgrade.api} | {_span(upgrades)} | {upgrade.to} | {upgrade.adds} | {upgrade.loses} |")
    return "\n".join(rows) + "\n"


def _span(upgrades: Sequence[Upgrade]) -> str:
    first, last = upgrades[0].version, upgrades[-1].version
    return str(first) if first == last else f"{first}-{last}"
