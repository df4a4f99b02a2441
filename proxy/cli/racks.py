"""Diagnostics of ``check`` about racks: of this process, of the brokers, and of the replicas that are read."""

from collections.abc import Iterator, Sequence
from typing import Final

from proxy.cli.cluster_info import BrokerInfo, Diagnostic, name_nodes
from proxy.config import RoutingConfig
from proxy.config.rack import RackFound

__all__ = ["diagnose_racks"]

_FOLLOWERS_FETCH: Final = 11
"""The first Fetch version that reads from followers (KIP-392)."""
_RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def diagnose_racks(brokers: Sequence[BrokerInfo], routing: RoutingConfig, found: RackFound) -> Iterator[Diagnostic]:
    """Yield the diagnostics of ``check`` about racks, and about the replicas that Sidefetch will read.

    Args: routing: the options for racks and replicas.
          found:   the result of the search for the rack of this process.
    """
    yield from _diagnose_own_rack(brokers, routing, found)
    yield from _diagnose_broker_racks(brokers)
    if routing.replica_selector == "leader":
        yield Diagnostic("note", "reads go to the leaders (--replica-selector leader)")
    elif found.rack is not None and found.rack in _racks(brokers):
        yield from _diagnose_replicas(brokers, routing, found.rack)


def _diagnose_own_rack(
    brokers: Sequence[BrokerInfo], routing: RoutingConfig, found: RackFound
) -> Iterator[Diagnostic]:
    racks = _racks(brokers)
    known = found.rack is not None
    for fault in found.faults:
        yield Diagnostic("note" if known else "warning", f"no rack from {fault}. Remedy: {fault.remedy}")
    if known:
        yield Diagnostic("note", f"Sidefetch is in rack {found.rack} (source: {found.how})")
    elif found.how:
        yield Diagnostic("note", f"the rack of Sidefetch was {found.how}")
    if known and brokers and found.rack not in racks:
        described = f"their racks are {', '.join(racks)}" if racks else "they have no racks"
        yield Diagnostic(
            "warning",
            f"NO BROKER IS IN RACK {found.rack}, the rack of Sidefetch: {described}. No replica is closest, so"
            " reads go to the leaders. Remedy: correct --rack or broker.rack; both must be exactly equal",
        )
    elif not known and racks and routing.replica_selector != "leader":
        tried = "; ".join(map(str, found.misses))
        yield Diagnostic(
            "warning" if tried else "note",
            f"the rack of Sidefetch is not known, but brokers are in {', '.join(racks)}: reads go to the"
            " leaders. Remedy: set --rack, or a source of --rack-from" + (f" (tried: {tried})" if tried else ""),
        )


def _diagnose_broker_racks(brokers: Sequence[BrokerInfo]) -> Iterator[Diagnostic]:
    racks = _racks(brokers)
    lacking = [broker for broker in brokers if not broker.rack]
    if not racks:
        yield Diagnostic("warning", "no broker has a rack (broker.rack), so no replica is known to be the closest")
    elif lacking:
        yield Diagnostic(
            "warning",
            f"{name_nodes(lacking)} without a rack (broker.rack); the other brokers are in {', '.join(racks)}",
        )
    else:
        yield Diagnostic("note", f"the brokers' racks: {', '.join(racks)}")


def _diagnose_replicas(brokers: Sequence[BrokerInfo], routing: RoutingConfig, rack: str) -> Iterator[Diagnostic]:
    reached = [broker for broker in brokers if not broker.problem]
    old = [broker for broker in reached if broker.fetch < _FOLLOWERS_FETCH]
    able = [broker for broker in reached if broker.fetch >= _FOLLOWERS_FETCH]
    if old:
        yield Diagnostic(
            "warning", f"only leaders are read on {name_nodes(old)} (below Fetch v11, which Kafka 2.3 introduced)"
        )
    if not able:
        return
    if routing.replica_selector == "rack-aware":
        yield Diagnostic(
            "ok",
            f"reads go to an in-sync replica in rack {rack} if there is one, even if the brokers prefer another"
            " replica (--replica-selector rack-aware)",
        )
        return
    without = [broker for broker in able if broker.selector_class == ""]
    silent = [broker for broker in able if broker.selector_class is None]
    for name in sorted({broker.selector_class for broker in able if broker.selector_class}):
        those = [broker for broker in able if broker.selector_class == name]
        how = (
            f"an in-sync replica in rack {rack} if there is one"
            if name == _RACK_AWARE
            else "the replicas that it selects"
        )
        yield Diagnostic(
            "ok", f"reads of partitions led by {name_nodes(those)} go to {how} (replica.selector.class {name})"
        )
    if without:
        yield Diagnostic(
            "warning",
            f"no closest replica is chosen by {name_nodes(without)} (no replica.selector.class): reads of"
            " partitions that they lead go to them. Remedy: --replica-selector rack-aware, or on the brokers"
            f" replica.selector.class={_RACK_AWARE}",
        )
    if silent:
        yield Diagnostic(
            "note",
            f"whether a closest replica is chosen by {name_nodes(silent)} is unknown, because"
            " replica.selector.class cannot be read there. If none is chosen, reads go to the leaders. Remedy:"
            " --replica-selector rack-aware, which does not need it",
        )


def _racks(brokers: Sequence[BrokerInfo]) -> list[str]:
    return sorted({broker.rack for broker in brokers if broker.rack})
