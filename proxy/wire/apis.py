"""The APIs and versions that Sidefetch accepts from clients, and those whose responses contain broker addresses."""

import enum
from collections.abc import Mapping, Set
from types import MappingProxyType
from typing import Final, NamedTuple

from kio.schema.index import api_key_map

from proxy.wire import fetch

__all__ = [
    "CARRIES_ADDRESSES",
    "KNOWN_KEYS",
    "NO_UPGRADES",
    "ApiKey",
    "ApiRanges",
    "VersionRange",
    "VersionUpgrades",
    "is_accepted",
    "offered_ranges",
]


class ApiKey(enum.IntEnum):
    """The keys of the APIs that Sidefetch decodes, rewrites or upgrades; it forwards other accepted APIs unread."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79


class VersionRange(NamedTuple):
    """A range of versions of one API, from *first* to *last* inclusive; ``version in range`` works."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


ApiRanges = Mapping[int, VersionRange]
"""The versions that a broker serves, by API key."""

_BETWEEN_CONTROLLERS: Final = frozenset({52, 53, 54, 59, 82})
"""Vote, BeginQuorumEpoch, EndQuorumEpoch, FetchSnapshot, UpdateRaftVoter: they name controllers' endpoints.

Only controllers serve them, on listeners of their own; no client has a use for them."""

KNOWN_KEYS: Final = frozenset(api_key_map) - _BETWEEN_CONTROLLERS
"""The keys of all APIs of which Sidefetch knows whether their responses contain broker addresses.

Clients may not use other APIs, because their responses might contain some."""

_ACCEPTED_VERSIONS: Final[Mapping[int, VersionRange]] = MappingProxyType(
    {
        ApiKey.PRODUCE: VersionRange(0, 13),
        ApiKey.FETCH: VersionRange(0, fetch.MAX_VERSION),
        ApiKey.METADATA: VersionRange(0, 13),
        ApiKey.FIND_COORDINATOR: VersionRange(0, 6),
        # Clients up to 2.4 negotiate wrongly when more is offered (KAFKA-9577).
        ApiKey.SASL_HANDSHAKE: VersionRange(0, 1),
        ApiKey.API_VERSIONS: VersionRange(0, 4),
        ApiKey.SASL_AUTHENTICATE: VersionRange(0, 2),
        # v2 adds the controllers' endpoints, for which Sidefetch has no address that clients could use.
        ApiKey.DESCRIBE_QUORUM: VersionRange(0, 1),
        ApiKey.DESCRIBE_CLUSTER: VersionRange(0, 2),
        ApiKey.SHARE_FETCH: VersionRange(1, 2),
        ApiKey.SHARE_ACKNOWLEDGE: VersionRange(1, 2),
    }
)
"""The accepted versions of APIs whose later versions might contain addresses or logins that Sidefetch would miss.

All versions of the other ``KNOWN_KEYS`` are accepted."""

CARRIES_ADDRESSES: Final[Mapping[int, int]] = MappingProxyType(
    {
        ApiKey.PRODUCE: 10,
        ApiKey.FETCH: 16,
        ApiKey.METADATA: 0,
        ApiKey.FIND_COORDINATOR: 0,
        ApiKey.DESCRIBE_CLUSTER: 0,
        ApiKey.SHARE_FETCH: 1,
        ApiKey.SHARE_ACKNOWLEDGE: 1,
    }
)
"""By API key, the first version whose responses contain broker addresses; other APIs contain none."""


def is_accepted(api_key: int, version: int, allowed: Set[int] = KNOWN_KEYS) -> bool:
    """Return whether Sidefetch accepts requests of this API and version from clients, served by brokers or not.

    Sidefetch accepts those in which it can find every broker address and login, of the APIs in *allowed*. It closes
    the connection on any other request, except for ApiVersions: there, the response is the error
    UNSUPPORTED_VERSION.
    """
    if api_key not in KNOWN_KEYS or api_key not in allowed:
        return False
    return api_key not in _ACCEPTED_VERSIONS or version in _ACCEPTED_VERSIONS[api_key]


VersionUpgrades = Mapping[tuple[int, int], int]
"""Maps (API key, version) of a request to the newer version that Sidefetch sends to the broker instead."""

NO_UPGRADES: Final[VersionUpgrades] = MappingProxyType({})
"""No version is upgraded."""


def offered_ranges(
    broker: ApiRanges, upgrades: VersionUpgrades = NO_UPGRADES, allowed: Set[int] = KNOWN_KEYS
) -> dict[int, VersionRange]:
    """Return the range of versions of each API that clients may use, if the broker serves the ranges *broker*.

    A range has the versions that both the broker serves and Sidefetch accepts; an API without such a version, or
    that is not in *allowed*, is left out. Lower versions are added if *upgrades* maps them to versions that the
    broker serves: librdkafka up to 2.10 looks for exact versions within the ranges and disables compression,
    message formats or groups if one is missing. The result is for the response to a client's ApiVersions request.
    """
    ranges = {}
    for api_key, served in broker.items():
        if api_key not in KNOWN_KEYS or api_key not in allowed:
            continue
        bound = _ACCEPTED_VERSIONS.get(api_key, served)
        common = VersionRange(max(served.first, bound.first), min(served.last, bound.last))
        if common.first <= common.last:
            ranges[api_key] = _extend_downwards(api_key, common, upgrades)
    return ranges


def _extend_downwards(api_key: int, served: VersionRange, upgrades: VersionUpgrades) -> VersionRange:
    """Extend *served* downwards, without gaps, by the versions that *upgrades* maps to one of *served*."""
    first = served.first
    while upgrades.get((api_key, first - 1)) in served:
        first -= 1
    return VersionRange(first, served.last)
