"""Diagnostics of ``check`` about a cluster. They are computed from values, so tests need no cluster."""

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final

from proxy.cli import racks, security
from proxy.cli.cluster_info import FETCH, BrokerInfo, ClusterInfo, Diagnostic, Range, name_nodes
from proxy.cluster.topology import BrokerId
from proxy.config import Config
from proxy.config.rack import RackFound
from proxy.convert.kernel import is_compiled
from proxy.relay.ports import NoPortLeft, PortAssignments

__all__ = ["can_serve", "diagnose", "kafka_release"]

_API_VERSIONS: Final = 18

_OLDEST_FETCH: Final = 4
"""The lowest Fetch version that Sidefetch sends; the highest is 18."""
_SESSIONS_FETCH: Final = 7
"""The first Fetch version with fetch sessions (KIP-227)."""
_TOPIC_IDS_FETCH: Final = 13
"""The first Fetch version with topic ids (KIP-516)."""
_NODE_ENDPOINTS_FETCH: Final = 16
"""The first Fetch version whose response has the address of a new leader (KIP-951)."""
_NAMED_SESSION_PARTITIONS: Final = 1000
"""Most partitions of a session by names: to create a larger one occupies a broker's request handler for seconds."""

_RELEASES: Final = (
    (18, "4.1 to 4.3"),
    (17, "3.9"),
    (16, "3.7 or 3.8"),
    (15, "3.5 or 3.6"),
    (13, "3.1 to 3.4"),
    (12, "2.7 to 3.0"),
    (11, "2.3 to 2.6"),
    (10, "2.1 or 2.2"),
    (8, "2.0"),
    (7, "1.1"),
    (6, "1.0"),
    (5, "0.11"),
)
"""The highest Fetch version of each Kafka release."""


def kafka_release(versions: Mapping[int, Range]) -> str:
    """Return the releases that a broker may have, such as ``Kafka 4.1 to 4.3``.

    It is a guess from the supported *versions* by API key, because a broker does not report its release.
    """
    lowest, highest = versions.get(FETCH, (0, -1))
    if highest > 18 or versions.get(_API_VERSIONS, (0, 0))[1] >= 5:
        return "Kafka 4.4 or newer"
    if highest == 17 and lowest >= 4:
        return "Kafka 4.0"
    return next((f"Kafka {release}" for least, release in _RELEASES if highest >= least), "older than Kafka 0.11")


def diagnose(
    cluster: ClusterInfo, config: Config, rack: RackFound, *, compiled: bool = is_compiled
) -> list[Diagnostic]:
    """Return all diagnostics of ``check`` about *cluster*, the most severe last.

    Args:  config: the settings with which Sidefetch would serve the cluster.
           rack: the result of the search for the rack of this process.
           compiled: whether compiled code converts records; without it, interpreted Python does, which is slower.
    """
    reached = [broker for broker in cluster.brokers if not broker.problem]
    found = [
        *_sessions(reached),
        *_leaders(reached),
        *_old_clients(reached, compiled=compiled),
        *racks.diagnose_racks(cluster.brokers, config.routing, rack),
        *security.diagnose_security(config),
        *_releases(reached),
        *_reach(cluster),
        *_ports(cluster.brokers, config),
    ]
    order = ["ok", "note", "warning", "failure"]
    return sorted(found, key=lambda finding: order.index(finding.level))


def can_serve(found: Iterable[Diagnostic]) -> bool:
    """Return whether clients can be served: no diagnostic is a ``failure``."""
    return all(finding.level != "failure" for finding in found)


def _sessions(brokers: list[BrokerInfo]) -> Iterator[Diagnostic]:
    by_name = _nodes(brokers, lambda fetch: _SESSIONS_FETCH <= fetch < _TOPIC_IDS_FETCH)
    without = _nodes(brokers, lambda fetch: _OLDEST_FETCH <= fetch < _SESSIONS_FETCH)
    ancient = _nodes(brokers, lambda fetch: fetch < _OLDEST_FETCH)
    by_id = _nodes(brokers, lambda fetch: fetch >= _TOPIC_IDS_FETCH)
    if by_id:
        yield Diagnostic("ok", f"incremental sessions by topic id with {by_id} (Fetch v13 or newer)")
    if by_name:
        yield Diagnostic(
            "note",
            f"incremental sessions by topic name with {by_name} (Fetch v7 to v12): up to"
            f" {_NAMED_SESSION_PARTITIONS} partitions each, full fetches beyond",
        )
    if without:
        yield Diagnostic("warning", f"no incremental sessions with {without} (below Fetch v7): full fetches only")
    if ancient:
        yield Diagnostic(
            "failure",
            f"{ancient} cannot be read (below Fetch v4, which Kafka 0.11 introduced). Remedy: upgrade them",
        )


def _leaders(brokers: list[BrokerInfo]) -> Iterator[Diagnostic]:
    with_endpoints = _nodes(brokers, lambda fetch: fetch >= _NODE_ENDPOINTS_FETCH)
    searched = _nodes(brokers, lambda fetch: _OLDEST_FETCH <= fetch < _NODE_ENDPOINTS_FETCH)
    if with_endpoints:
        yield Diagnostic(
            "ok",
            f"a moved leader is named, with its address, in the responses of {with_endpoints} (Fetch v16 or newer)",
        )
    if searched:
        yield Diagnostic("note", f"a moved leader is found by a metadata request with {searched} (below Fetch v16)")


def _old_clients(brokers: list[BrokerInfo], *, compiled: bool) -> Iterator[Diagnostic]:
    without = [broker for broker in brokers if broker.oldest_fetch > 0]
    if without:
        yield Diagnostic(
            "ok",
            f"clients of Kafka 0.8 and newer are served: requests in versions that {name_nodes(without)} no longer"
            f" support, such as Fetch below v{max(broker.oldest_fetch for broker in without)}, are upgraded, and"
            " records are converted",
        )
    if without and not compiled:
        yield Diagnostic(
            "note",
            "records are converted by Python alone, fifteen times as slowly as by compiled code, because there was"
            " no C compiler at installation. Remedy: install a C compiler, then Sidefetch again",
        )


def _releases(brokers: list[BrokerInfo]) -> Iterator[Diagnostic]:
    releases = sorted({kafka_release(broker.versions) for broker in brokers})
    if len(releases) > 1:
        described = "; ".join(
            f"{name_nodes([b for b in brokers if kafka_release(b.versions) == release])} {release}"
            for release in releases
        )
        yield Diagnostic(
            "note",
            f"the brokers have several releases: {described}. Clients are offered the API versions of all of them",
        )


def _reach(cluster: ClusterInfo) -> Iterator[Diagnostic]:
    for broker in cluster.brokers:
        if broker.problem:
            yield Diagnostic("failure", f"node {broker.node} at {broker.address} was not reached: {broker.problem}")
    if not cluster.brokers:
        yield Diagnostic("failure", "the cluster's metadata has no brokers")
    local = [broker for broker in cluster.brokers if _is_loopback(broker.address.host)]
    if local and not _is_loopback(cluster.through.host):
        yield Diagnostic(
            "warning",
            f"{name_nodes(local)} advertised on loopback, but {cluster.through} is not on loopback: an address on"
            " loopback reaches no other host. Remedy: correct advertised.listeners of the brokers",
        )


def _ports(brokers: tuple[BrokerInfo, ...], config: Config) -> Iterator[Diagnostic]:
    ports = config.downstream.broker_ports
    book = PortAssignments(ports, config.downstream.share_ports)
    for broker in sorted(brokers, key=attrgetter("node")):
        try:
            book.assign(BrokerId(broker.node))
        except NoPortLeft as none_left:
            yield Diagnostic("failure", f"broker-ports: {none_left}")
    for broker in brokers:
        if _is_loopback(broker.address.host) and broker.address.port in ports:
            yield Diagnostic(
                "warning",
                f"node {broker.node} itself listens on {broker.address}, among broker-ports ({ports}): on the same"
                " host, Sidefetch cannot use that port. Remedy: another range for --broker-ports",
            )


def _nodes(brokers: Iterable[BrokerInfo], chosen: Callable[[int], bool]) -> str:
    return name_nodes([broker for broker in brokers if chosen(broker.fetch)])


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
