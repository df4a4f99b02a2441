"""What check finds of racks: where this is, where the brokers are, and which replicas are read therefore."""

from collections.abc import Iterator, Sequence
from typing import Final

from proxy.cli.cluster_info import BrokerInfo, Diagnostic, named
from proxy.config import RoutingConfig
from proxy.config.rack import RackFound

__all__ = ["findings"]

_FOLLOWERS_FETCH: Final = 11
"""KIP-392."""
_RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def findings(brokers: Sequence[BrokerInfo], routing: RoutingConfig, found: RackFound) -> Iterator[Diagnostic]:
    """*found*: the rack that this is in, as far as it is known."""
    yield from _here(brokers, routing, found)
    yield from _there(brokers)
    if routing.replica_selector == "leader":
        yield Diagnostic("note", "reads go to the leaders (--replica-selector leader)")
    elif found.rack is not None and found.rack in _racks(brokers):
        yield from _reads(brokers, routing, found.rack)


def _here(brokers: Sequence[BrokerInfo], routing: RoutingConfig, found: RackFound) -> Iterator[Diagnostic]:
    racks = _racks(brokers)
    known = found.rack is not None
    for fault in found.faults:
        yield Diagnostic("note" if known else "warning", f"the rack is not told by {fault}. Remedy: {fault.remedy}")
    if known:
        yield Diagnostic("note", f"this is in rack {found.rack} (by {found.how})")
    elif found.how:
        yield Diagnostic("note", f"which rack this is in was {found.how}")
    if known and brokers and found.rack not in racks:
        told = f"their racks are {', '.join(racks)}" if racks else "they have no racks at all"
        yield Diagnostic(
            "warning",
            f"NO BROKER IS IN RACK {found.rack}, where this is: {told}. Nothing is closest, so reads go to the"
            " leaders. Remedy: --rack or broker.rack, whichever is wrong; they must be equal to the letter",
        )
    elif not known and racks and routing.replica_selector != "leader":
        tried = "; ".join(map(str, found.misses))
        yield Diagnostic(
            "warning" if tried else "note",
            f"which rack this is in is not known, though brokers are in {', '.join(racks)}: reads go to the"
            " leaders. Remedy: --rack, or a place that --rack-from names" + (f" (tried: {tried})" if tried else ""),
        )


def _there(brokers: Sequence[BrokerInfo]) -> Iterator[Diagnostic]:
    racks = _racks(brokers)
    lacking = [broker for broker in brokers if not broker.rack]
    if not racks:
        yield Diagnostic(
            "warning", "no broker has a rack (broker.rack): none could be told to be closer than the others"
        )
    elif lacking:
        yield Diagnostic(
            "warning", f"{named(lacking)} without a rack (broker.rack), the others in {', '.join(racks)}"
        )
    else:
        yield Diagnostic("note", f"the brokers' racks: {', '.join(racks)}")


def _reads(brokers: Sequence[BrokerInfo], routing: RoutingConfig, rack: str) -> Iterator[Diagnostic]:
    reached = [broker for broker in brokers if not broker.problem]
    old = [broker for broker in reached if broker.fetch < _FOLLOWERS_FETCH]
    able = [broker for broker in reached if broker.fetch >= _FOLLOWERS_FETCH]
    if old:
        yield Diagnostic(
            "warning", f"of {named(old)} only leaders are read (below Fetch v11, which Kafka 2.3 brought)"
        )
    if not able:
        return
    if routing.replica_selector == "rack-aware":
        yield Diagnostic(
            "ok", f"reads go to replicas in rack {rack} where one is in sync, whatever brokers say (rack-aware)"
        )
        return
    without = [broker for broker in able if broker.selector_class == ""]
    silent = [broker for broker in able if broker.selector_class is None]
    for name in sorted({broker.selector_class for broker in able if broker.selector_class}):
        those = [broker for broker in able if broker.selector_class == name]
        how = (
            f"replicas in rack {rack} where one is in sync" if name == _RACK_AWARE else "the replicas that it names"
        )
        yield Diagnostic("ok", f"of what {named(those)} lead, reads go to {how} (replica.selector.class {name})")
    if without:
        yield Diagnostic(
            "warning",
            f"no closest replica is chosen by {named(without)} (no replica.selector.class): what they lead is read"
            " from them. Remedy: --replica-selector rack-aware, or on the brokers"
            f" replica.selector.class={_RACK_AWARE}",
        )
    if silent:
        yield Diagnostic(
            "note",
            f"whether a closest replica is chosen by {named(silent)} is unknown (replica.selector.class was not"
            " told). Where none is, reads go to the leaders: --replica-selector rack-aware does without",
        )


def _racks(brokers: Sequence[BrokerInfo]) -> list[str]:
    return sorted({broker.rack for broker in brokers if broker.rack})
