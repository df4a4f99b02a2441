"""Recommendations to operators with their benefits, derived by rules from a report's query results. Pure.

A rule is a function of the results. The order is that of ``_RULES``: failures, cost, delays, and the accuracy of
this report. Within a rule, the largest benefit comes first; no rule may fill the list.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from proxy.analysis.report.model import Figure, Recommendation
from proxy.analysis.report.ranking import display_name, share
from proxy.analysis.report.results import QueryResults
from proxy.analysis.report.words import in_words, plural

__all__ = ["MOST", "advice"]

MOST: Final = 5
"""The maximum number of recommendations."""
_MOST_OF_A_RULE: Final = 2
_LEAST_USD_A_MONTH: Final = 1.0
_LEAST_SHARE: Final = 0.01
"""The least share of the total for which a recommendation is made."""
_LEAST_SHARE_OF_DELAY: Final = 0.1
_LEAST_CPU_S_A_MONTH: Final = 3600.0


def advice(found: QueryResults) -> tuple[Recommendation, ...]:
    """Return at most five recommendations, the most important first, and at most two of the same rule.

    Each rule looks for one problem in the results: clients that break on Kafka 4, traffic across racks, and others.
    Their order gives the importance. The result is empty if no rule finds a problem.
    """
    recommendations = (each for rule in _RULES for each in islice(rule(found), _MOST_OF_A_RULE))
    return tuple(islice(recommendations, MOST))


def _upgrades(found: QueryResults) -> Iterator[Recommendation]:
    breaking_bytes = found.readiness.breaking_bytes
    for row in found.readiness.breaking.rows:
        yield Recommendation(
            f"Upgrade {display_name(row['client_id'])} before the brokers go to Kafka 4, or keep it behind"
            " Sidefetch",
            f"It asks for {', '.join(row['versions'])}, which Kafka 4 does not serve"
            + (f" ({row['software']})." if row["software"] else "."),
            Figure("of the traffic that breaks", share(row["bytes"], breaking_bytes), "share"),
            f"{in_words(row['bytes'], 'bytes')} of the {in_words(breaking_bytes, 'bytes')} that such clients have"
            f" asked for and been answered, on {plural(row['connections'], 'connection')}.",
        )


def _racks_that_are_not_known(found: QueryResults) -> Iterator[Recommendation]:
    zones = found.zones
    all_bytes = zones.crossing_bytes + zones.inner_bytes + zones.unknown_bytes
    part = share(zones.readerless_bytes, all_bytes)
    price = zones.prices.out_per_gb + zones.prices.in_per_gb
    worst = found.about.a_month(zones.readerless_bytes / zones.prices.gb_bytes * price)
    if part is not None and part >= _LEAST_SHARE and worst >= _LEAST_USD_A_MONTH:
        yield Recommendation(
            "Configure the rack of each Sidefetch",
            "Without it, leaders are read wherever they are, and nobody knows what crosses (--rack, --rack-from).",
            Figure("a month, at most", worst, "usd"),
            f"{in_words(zones.readerless_bytes, 'bytes')} ({in_words(part, 'share')} of all) went to Sidefetches"
            " that do not know where they are;"
            f" at {in_words(price, 'usd')} a GiB, if all of it crosses, in 30 days.",
        )


def _crossing(found: QueryResults) -> Iterator[Recommendation]:
    zones = found.zones
    a_month = found.about.a_month(zones.cost)
    if a_month >= _LEAST_USD_A_MONTH:
        pairs = [row for row in zones.pairs.rows if row["is_crossing"]]
        worst = max(pairs, key=lambda row: row["cost"])
        yield Recommendation(
            "Read from replicas in the reader's own rack",
            f"Most goes between {worst['source_rack']} and {worst['reader_rack']}: have a replica in each rack, and"
            " replica.selector.class on the brokers, or --replica-selector rack-aware.",
            Figure("a month, at most", a_month, "usd"),
            f"{in_words(zones.crossing_bytes, 'bytes')} crossed racks for {in_words(zones.cost, 'usd')};"
            " as much for 30 days.",
        )


def _conversions(found: QueryResults) -> Iterator[Recommendation]:
    for row in found.conversion.by_client.rows:
        cpu_s = found.about.a_month(row["cpu_s"])
        if cpu_s >= _LEAST_CPU_S_A_MONTH:
            yield Recommendation(
                f"Upgrade {display_name(row['client_id'])}: all that it reads is converted",
                f"It reads records of format v{row['converted_to']}"
                + (f" with {row['software']}." if row["software"] else "."),
                Figure("of CPU a month", cpu_s * 1_000_000, "us"),
                f"{in_words(row['in_bytes'], 'bytes')} of records were converted in"
                f" {in_words(row['cpu_s'] * 1_000_000, 'us')} of CPU; as much for 30 days.",
            )


def _slots(found: QueryResults) -> Iterator[Recommendation]:
    denied = found.sessions.of_brokers("evicted") + found.sessions.of_brokers("refused")
    part = share(denied, denied + found.sessions.of_brokers("created"))
    if part is not None and part >= _LEAST_SHARE:
        a_day = denied / found.about.days
        yield Recommendation(
            "Give the brokers more slots for sessions",
            "Sessions lose their slot, or get none, and then name every partition again"
            " (max.incremental.fetch.session.cache.slots).",
            Figure("sessions a day that would live on", a_day, "count"),
            f"{plural(found.sessions.of_brokers('evicted'), 'session')} evicted and"
            f" {in_words(found.sessions.of_brokers('refused'), 'count')} refused, of"
            f" {in_words(found.sessions.of_brokers('created'), 'count')} created.",
        )


def _thrashing(found: QueryResults) -> Iterator[Recommendation]:
    for row in found.sessions.thrashing.rows:
        yield Recommendation(
            f"Look at why {display_name(row['client_id'])} connects so often",
            "Its sessions are many and short, and each keeps a slot from others for two minutes.",
            Figure("sessions a day that are none", row["short_lives"] / found.about.days, "count"),
            f"{in_words(row['short_lives'], 'count')} of {plural(row['created'], 'session')} lived for less than"
            " two minutes.",
        )


def _delays(found: QueryResults) -> Iterator[Recommendation]:
    remedies = {
        "budget": ("Give Sidefetch more memory", "Answers wait until there is room for them (--memory)."),
        "throttle": (
            "Raise quotas, or spread the load",
            "Brokers have clients wait (consumer_byte_rate and others).",
        ),
        "convert": ("Give Sidefetch more CPU", "Answers wait for their records to be converted."),
    }
    waiting = found.waiting
    for cause, (title, why) in remedies.items():
        part = share(waiting.delay_s(cause), waiting.all_delay_s)
        if part is not None and part >= _LEAST_SHARE_OF_DELAY:
            yield Recommendation(
                title,
                why,
                Figure("of clients' delay", part, "share"),
                f"{in_words(waiting.delay_s(cause) * 1e6, 'us')} of {in_words(waiting.all_delay_s * 1e6, 'us')}"
                " that fetches with records have waited, other than for news.",
            )


def _anomalies(found: QueryResults) -> Iterator[Recommendation]:
    for row in found.anomalies.runs.rows:
        yield Recommendation(
            f"Ask what has happened to {display_name(row['client_id'])}",
            str(row["explanation"]),
            Figure("spreads from its usual", abs(row["z"]), "ratio"),
            f"Held against {plural(row['past_hours'], 'hour')} of its own past ({row['past']}).",
        )


def _lost_rows(found: QueryResults) -> Iterator[Recommendation]:
    about = found.about
    part = share(about.lost_count, about.lost_count + about.row_count)
    if part is not None and part >= _LEAST_SHARE:
        yield Recommendation(
            "Give ledgers more room, or collect them sooner",
            "Sidecars have lost rows: --ledger-max-size, --ledger-memory, or the topic (--ledger-topic).",
            Figure("of all rows", part, "share"),
            f"{plural(about.lost_count, 'row')} of {about.lost_count + about.row_count:,} are reported as lost.",
        )


_RULES: Final[Iterable[Callable[[QueryResults], Iterator[Recommendation]]]] = (
    _upgrades,
    _racks_that_are_not_known,
    _crossing,
    _conversions,
    _slots,
    _thrashing,
    _delays,
    _anomalies,
    _lost_rows,
)
