"""The JSON document of ``/api/v1/state``, the only source of the status page and of ``sidefetch top``.

Times ending in ``_us`` are microseconds since 1970 UTC. Fields keep their names as long as the API is ``v1``; new
ones may be added.
"""

from collections.abc import Iterator
from typing import Any, Final

from proxy.telemetry.instruments import api_name, error_name, is_upgraded
from proxy.telemetry.problems import Problem, ordered
from proxy.telemetry.snapshot import MetricsSnapshot
from proxy.telemetry.state import BrokerReads, ClientKey, ClientSummary
from proxy.telemetry.sums import Sums

__all__ = ["document"]

_MOST_TOPICS: Final = 10


def document(facts: MetricsSnapshot) -> dict[str, Any]:
    """Return the response body of ``/api/v1/state`` for *facts*, as a dict that ``json.dumps`` accepts."""
    state, now_us = facts.state, facts.now_us
    return {
        "now_us": now_us,
        "started_us": state.started_us,
        "version": facts.version,
        "status": facts.status,
        "is_reached": facts.is_reached,
        "cluster_id": facts.topology.cluster_id,
        "rack": state.rack,
        "bypass": facts.bypass,
        "share_reads_except": facts.share_reads_except,
        "share_reads": facts.share_reads,
        "delivery_ratio": None if state.total.delivery_ratio is None else round(state.total.delivery_ratio, 3),
        "total": _sums(state.total),
        "bytes_per_s": round(state.byte_rate.at(now_us)),
        "connections": facts.connections,
        "longest_turn_ms": round(1000 * facts.longest_turn_s, 1),
        "clients": [_client(key, client, now_us) for key, client in state.clients.items()],
        "sessions": _sessions(facts),
        "brokers": list(_brokers(facts)),
        "topics": [
            {"topic": topic, "record_bytes": record_bytes, "crossed_bytes": crossed_bytes}
            for topic, record_bytes, crossed_bytes in sorted(facts.topics, key=lambda each: -each[1])[:_MOST_TOPICS]
        ],
        "minutes": [{"at_us": each.at_us, **_sums(each.sums)} for each in state.minutes.last(now_us)],
        "conversion": {str(magic): records for magic, records in sorted(state.converted.items())},
        "waited_us": dict(state.waited_us),
        "throttled_ms": state.throttled_ms,
        "errors": {error_name(code): times for code, times in state.errors.most_common()},
        "memory": [
            {
                "budget": each.name,
                "limit_bytes": each.limit_bytes,
                "claimed_bytes": each.claimed_bytes,
                "waiting": each.waiting,
                "waits": facts.counts.get(f"limit_{each.name.replace('-', '_')}", 0),
            }
            for each in facts.budgets
        ],
        "problems": [_problem(each) for each in ordered((*_lasting(facts), *facts.problems))],
    }


def _sums(sums: Sums) -> dict[str, int]:
    names = (
        "client_fetches",
        "broker_fetches",
        "saved_fetches",
        "client_talk_bytes",
        "broker_talk_bytes",
        "saved_bytes",
        "delivered_bytes",
        "held_bytes",
        "record_bytes",
        "shared_fetched_bytes",
        "shared_delivered_bytes",
        "own_rack_bytes",
        "crossed_bytes",
        "client_partitions",
        "broker_partitions",
        "broker_named",
        "converted_records",
        "converted_in_bytes",
        "converted_out_bytes",
        "conversion_cpu_us",
        "resets",
    )
    return {name: getattr(sums, name) for name in names}


def _client(key: ClientKey, client: ClientSummary, now_us: int) -> dict[str, Any]:
    readers = list(client.readers.values())
    identified = [reader for reader in readers if reader.software]
    upgraded = {
        (api.key, api.version, api.upgraded_to)
        for reader in readers
        for api in reader.apis
        if is_upgraded(api.key, api.version, api.upgraded_to)
    }
    return {
        "client_id": key.client_id,
        "host": key.host,
        "software": identified[0].software if identified else "",
        "is_guess": identified[0].is_guess if identified else True,
        "connections": len(readers),
        "fetch_versions": sorted({reader.version for reader in readers if reader.version is not None}),
        "upgraded": [f"{api_name(api)} v{version} to v{to}" for api, version, to in sorted(upgraded)],
        "partitions": sum(reader.wanted for reader in readers),
        "client_sessions": sum(reader.session_id != 0 for reader in readers),
        "broker_sessions": sum(len(reader.sessions) for reader in readers),
        "fetches": client.fetches,
        "shared_fetches": client.shared_fetches,
        "broker_fetches": client.broker_fetches,
        "saved_bytes": client.saved_bytes,
        "delivered_bytes": client.delivered_bytes,
        "converted_records": client.converted_records,
        "bytes_per_s": round(client.byte_rate.at(now_us)),
        "fetches_per_s": round(client.fetch_rate.at(now_us), 2),
    }


def _sessions(facts: MetricsSnapshot) -> dict[str, Any]:
    alive = facts.state.sessions()
    return {
        "client": {
            "sessions": facts.client_sessions,
            "partitions": facts.client_session_partitions,
            "evictions": facts.client_session_evictions,
            "limit": facts.client_session_limit,
        },
        "broker": {"sessions": len(alive), "partitions": sum(each.partitions for each in alive)},
        "events": [
            {"side": "broker" if side == "upstream" else side, "event": event, "reason": reason, "times": times}
            for (side, event, reason), times in facts.state.session_events.most_common()
        ],
    }


def _brokers(facts: MetricsSnapshot) -> Iterator[dict[str, Any]]:
    alive = facts.state.sessions()
    known: dict[int, BrokerReads] = {
        int(node): BrokerReads(each.rack) for node, each in facts.topology.brokers.items()
    }
    for node, broker in sorted((known | facts.state.brokers).items()):
        yield {
            "node": node,
            "rack": broker.rack,
            "fetches": broker.fetches,
            "record_bytes": broker.record_bytes,
            "bytes_per_s": round(broker.byte_rate.at(facts.now_us)),
            "partitions": dict(broker.partitions),
            "sessions": sum(each.node == node for each in alive),
        }


def _lasting(facts: MetricsSnapshot) -> Iterator[Problem]:
    """Yield the conditions that still hold although their log events are no longer among ``facts.problems``."""
    reported = {each.event for each in facts.problems}
    if facts.is_reached is False and "no-broker-reachable" not in reported:
        yield Problem.now("no-broker-reachable", "error", "", facts.now_us)
    if facts.has_broker_in_rack is False and "no-broker-in-rack" not in reported:
        yield Problem.now("no-broker-in-rack", "warning", f"rack {facts.state.rack}", facts.now_us)


def _problem(each: Problem) -> dict[str, Any]:
    return {
        "level": each.level,
        "event": each.event,
        "title": each.title,
        "remedy": each.remedy,
        "detail": each.detail,
        "times": each.times,
        "first_us": each.first_us,
        "last_us": each.last_us,
    }
