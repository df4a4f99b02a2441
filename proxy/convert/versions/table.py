"""Every version that is lifted, by API key and version."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Final

from proxy.convert.versions import (
    acls,
    describe_configs,
    fetch,
    join_group,
    list_offsets,
    offset_commit,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    same_layout,
    topics,
)
from proxy.convert.versions.lift import Lift
from proxy.wire.apis import ApiKey, ApiRanges

__all__ = ["LIFTS", "TARGETS", "readme_table", "serves"]

_MODULES: Final = (
    produce,
    fetch,
    list_offsets,
    offset_commit,
    offset_fetch,
    join_group,
    topics,
    offset_for_leader_epoch,
    acls,
    describe_configs,
    same_layout,
)

LIFTS: Final[Mapping[tuple[int, int], Lift]] = MappingProxyType(
    {(lift.key, lift.version): lift for module in _MODULES for lift in module.LIFTS}
)
TARGETS: Final[Mapping[tuple[int, int], int]] = MappingProxyType({key: lift.to for key, lift in LIFTS.items()})
"""What each is lifted to."""

_PRODUCE_SINCE: Final = 3


def serves(broker: ApiRanges, key: int, version: int) -> bool:
    """Whether a broker that tells *broker* answers this version itself.

    Of Produce, Kafka 4 tells that it serves all versions, for the sake of clients that look for old ones, and
    closes the connection on those before v3 (KAFKA-18659). They went together with Fetch v0, of which it tells.
    """
    told = broker.get(key)
    if told is None or version not in told:
        return False
    fetch_range = broker.get(ApiKey.FETCH)
    has_lost_old_records = fetch_range is not None and fetch_range.first > 0
    return key != ApiKey.PRODUCE or version >= _PRODUCE_SINCE or not has_lost_old_records


def readme_table() -> str:
    """What the README tells of ``LIFTS``: a row for versions of which the same is to be said."""
    rows = ["| API | versions | lifted to | added | lost |", "|---|---|---|---|---|"]
    for _, some in groupby(LIFTS.values(), key=lambda lift: (lift.key, lift.adds, lift.loses)):
        lifts = list(some)
        lift = lifts[0]
        rows.append(f"| {lift.api} | {_span(lifts)} | {lift.to} | {lift.adds} | {lift.loses} |")
    return "\n".join(rows) + "\n"


def _span(lifts: Sequence[Lift]) -> str:
    first, last = lifts[0].version, lifts[-1].version
    return str(first) if first == last else f"{first}-{last}"
