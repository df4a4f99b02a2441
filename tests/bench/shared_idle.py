"""Thousands of idle clients that share reads: their set-up, their fetches, and the sessions at the broker."""

import time
from collections.abc import Callable, Mapping
from typing import Final

from tests.bench.frame import Figure, Table, measure_all
from tests.bench.load import BROKER_CPU, FETCHES, OWN_CPU, Side, cost_of, idle_cpu, idlers, sides
from tests.bench.machine import cpu_seconds, resident_mib
from tests.bench.reader import Job
from tests.bench.shared import CLIENT_ID, DIRECT, PRINCIPAL, SHARE_READS, expect_at_most
from tests.bench.stage import NODE, create_topics
from tests.kafka.cluster import KafkaCluster
from tests.kafka.metrics import broker_counts

__all__ = ["run"]

_TOPIC: Final = {"shared-idle": 10}
_SESSIONS: Final = Figure("sessions at the broker", "")
_SERVED: Final = Figure("until all are served", "s")
_SET_UP: Final = Figure("CPU of Sidefetch to set up a connection", "ms")
_FETCH: Final = Figure("CPU of Sidefetch for an idle fetch", "ms")
_MEMORY: Final = Figure("memory of a client", "kB")
_LIMITS: Final = {_SESSIONS: 1, _SET_UP: 1.0, _FETCH: 0.15, _MEMORY: 60}
_OPTIONS: Final = ("--max-connections", "4000", "--max-connections-per-peer", "4000")
_SETTLE_S: Final = 2.0


def run(cluster: KafkaCluster, *, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """Clients of ten idle partitions: with one client id, and with an id each if they share by principal."""
    create_topics(cluster, _TOPIC)
    clients, seconds, rounds = (400, 3.0, 1) if quick else (2_000, 10.0, 2)
    alone = idle_cpu(cluster, seconds)

    def way(name: str) -> Callable[[], Mapping[Figure, float]]:
        def once() -> Mapping[Figure, float]:
            options = (*_OPTIONS, "--share-reads", SHARE_READS.get(name, "off"))
            with sides(cluster, options=options) as (direct, through):
                side = direct if name == DIRECT else through
                return _polling(side, clients, cluster, seconds, alone, own_ids=name == PRINCIPAL)

        return once

    case = f"{clients:,} idle clients of the same {sum(_TOPIC.values())} partitions"
    tables = measure_all(
        case, {name: way(name) for name in (DIRECT, *SHARE_READS)}, rounds=rounds, show_progress=show_progress
    )
    return [
        table.expecting(
            *(expect_at_most(table, name, _LIMITS[figure]) for name in (CLIENT_ID, PRINCIPAL) if figure in _LIMITS)
        )
        for figure, table in tables.items()
    ]


def _polling(
    side: Side, clients: int, cluster: KafkaCluster, seconds: float, alone: float, *, own_ids: bool
) -> Mapping[Figure, float]:
    pid = side.sidefetch_pid
    sessions_before = broker_counts(cluster, [NODE])[NODE].sessions
    before_s, before_kb = _cpu_s(pid), _resident_kb(pid)
    with idlers(Job(side.address, _TOPIC), clients, own_ids=own_ids) as crowd:
        served_s = _cpu_s(pid)
        time.sleep(_SETTLE_S)
        _, cost = cost_of(lambda: time.sleep(seconds), cluster, side)
        grown_kb = _resident_kb(pid) - before_kb
        polled_s = _cpu_s(pid) - served_s
        reported = crowd.leave()
    rates = cost.a_second(alone)
    found: dict[Figure, float] = {_SERVED: reported["served_s"], _SESSIONS: cost.sessions - sessions_before}
    found |= {figure: rates[figure] for figure in (FETCHES, BROKER_CPU)}
    if pid is None:
        return found
    fetch_s = polled_s / (reported["answers"] - reported["served_answers"])
    # Clients that are served early fetch again while others connect.
    set_up_s = served_s - before_s - fetch_s * (reported["served_answers"] - clients)
    return {
        **found,
        OWN_CPU: rates[OWN_CPU],
        _SET_UP: 1000 * set_up_s / clients,
        _FETCH: 1000 * fetch_s,
        _MEMORY: grown_kb / clients,
    }


def _cpu_s(pid: int | None) -> float:
    return 0.0 if pid is None else cpu_seconds(pid)


def _resident_kb(pid: int | None) -> float:
    return 0.0 if pid is None else resident_mib(pid, "VmRSS") * 1.048576 * 1000
