"""Build a report from ledgers: Spark computes query results of bounded size; the rest is pure."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import attrs

from proxy.analysis.answers.zones import Prices
from proxy.analysis.ingest import IngestResult
from proxy.analysis.report.advice import advice
from proxy.analysis.report.model import Report
from proxy.analysis.report.results import QueryResults
from proxy.analysis.report.sections import anomalies, conversion, readiness, savings, sessions, waiting, zones
from proxy.analysis.report.sections import coverage as read

__all__ = ["query_results", "report_of"]

_AT_ONCE: Final = 3
"""The number of results that Spark computes at once: together they use the whole machine."""


def report_of(rows: IngestResult, prices: Prices) -> Report:
    """Run the Spark queries of a report on the ledger rows *rows*, and return the report.

    Args: prices: the prices of traffic between racks.
    """
    return write_report(query_results(rows, prices))


def query_results(rows: IngestResult, prices: Prices) -> QueryResults:
    """Run the Spark queries of a report on the ledger rows *rows*, three at a time, and collect their results.

    The size of the results does not grow with the fleet.

    Args: prices: the prices of traffic between racks.
    Cost: each frame of *rows* is computed once, and cached in memory or on disk until the queries are done.
    """
    kept = {name: frame.persist() for name, frame in attrs.asdict(rows.ledger, recurse=False).items()}
    ledger = attrs.evolve(rows.ledger, **kept)
    asks: dict[str, Callable[[], Any]] = {
        "read": partial(read.run_query, ledger, rows.bad),
        "savings": partial(savings.run_query, ledger),
        "zones": partial(zones.run_query, ledger, prices),
        "readiness": partial(readiness.run_query, ledger),
        "conversion": partial(conversion.run_query, ledger),
        "sessions": partial(sessions.run_query, ledger),
        "waiting": partial(waiting.run_query, ledger),
        "anomalies": partial(anomalies.run_query, ledger),
    }
    try:
        # Spark deadlocks if threads fill cached frames that depend on each other, and one of them fails.
        for frame in kept.values():
            frame.count()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = {name: pool.submit(ask) for name, ask in asks.items()}
            return QueryResults(**{name: answer.result() for name, answer in answers.items()})
    finally:
        for frame in kept.values():
            frame.unpersist()


def write_report(found: QueryResults) -> Report:
    """Turn query results into a report: main figures, recommendations, and sections with tables. Pure."""
    about = found.about
    return Report(
        about,
        (
            *savings.figures(found.savings),
            *zones.figures(found.zones, about),
            *readiness.figures(found.readiness),
            *conversion.figures(found.conversion),
        ),
        advice(found),
        (
            savings.section(found.savings),
            zones.section(found.zones, about),
            readiness.section(found.readiness),
            conversion.section(found.conversion),
            sessions.section(found.sessions),
            waiting.section(found.waiting),
            anomalies.section(found.anomalies),
            read.section(found.read),
        ),
    )
