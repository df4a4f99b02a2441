"""The tables of a run, for ``RESULTS.md`` and the README: pure, from its JSON."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import attrs

from tests.bench.frame import figure_text

__all__ = ["digest", "summary"]

Run = Mapping[str, Any]
"""A run as in ``bench-TIME.json``."""


@attrs.frozen
class _Row:
    """A row of each table whose name *case* matches; those that come to the same *label* share one."""

    case: str
    label: str
    """The label; the groups of the pattern replace ``{0}``, ``{1}``."""


@attrs.frozen
class _Grid:
    """A column for each way; or for all ways of a table together, where tables have ways of their own."""

    title: str
    rows: Sequence[_Row]
    columns: Sequence[str] = ()


_DIRECTLY: Final = ("direct", "Sidefetch")
_PROXIES: Final = ("direct", "frames in C", "HAProxy", "Kroxylicious", "Sidefetch")
_SHARED: Final = ("one consumer, direct", "direct", "Sidefetch", "shared by client id", "shared by principal")
_DELIVERY: Final = "delivery, p(?:50|99)"

_GRIDS: Final = (
    _Grid(
        "idle partitions",
        (
            _Row(r"idle, ([\d,]+) partitions", "a fetch of {0}, both ways"),
            _Row(r"idle, ([\d,]+) partitions: to begin and end", "to begin and end the sessions of {0}"),
            _Row(r"long poll idle, (1,000|10,000) partitions: (.*)", "a consumer of {0}: {1}"),
            _Row(
                r"closest idle, (.*): fetches within the max wait at \d",
                "{0}: fetches at each broker in five seconds",
            ),
        ),
        _DIRECTLY,
    ),
    _Grid(
        "reading",
        (
            _Row(r"reading 1 KiB records, ([\d]+ clients?): (.*)", "{0}, records of 1 KiB: {1}"),
            _Row(
                r"one record a fetch, (in order|out of order): p(?:50|99)",
                "1 client, {0}, one record a fetch: p50 and p99",
            ),
            _Row(
                r"one record a fetch, beside a conversion: p(?:50|99)",
                "the same in order, beside a client whose records are converted",
            ),
        ),
        _PROXIES,
    ),
    _Grid(
        "from writing a record to its arrival, p50 and p99; what it costs",
        (
            _Row(rf"long poll wake, (.*): {_DELIVERY}", "1,000 idle partitions, {0}"),
            _Row(rf"long poll moving, (.*): {_DELIVERY}", "{0}"),
            _Row(r"long poll moving, (.*): (fetches at the broker|CPU of the broker)", "{0}: {1}"),
        ),
        _DIRECTLY,
    ),
    _Grid(
        "many clients",
        (_Row(r"([\d,]+ clients of \d+ idle partitions): (.*)", "{0}: {1}"),),
        _DIRECTLY,
    ),
    _Grid(
        "clients that share reads",
        (
            _Row(
                rf"([\d,]+ consumers of .*): {_DELIVERY}", "{0}: from writing a record to its arrival, p50 and p99"
            ),
            _Row(
                r"([\d,]+ consumers of .*): "
                r"(bytes that the brokers send|connections to a broker, at most|fetches at the broker|CPU of .*)",
                "{0}: {1}",
            ),
            _Row(r"([\d,]+ consumers, [\d,]+ of them behind): (.*)", "{0}: {1}"),
            _Row(r"([\d,]+ idle clients of the same \d+ partitions): (.*)", "{0}: {1}"),
        ),
        _SHARED,
    ),
    _Grid(
        "old clients (Fetch v1): MB of values; CPU of broker and Sidefetch",
        (_Row(r"(.*) by Fetch v1: (speed|CPU)", "{0}: {1}"),),
        ("Kafka 3.9 converts", "Sidefetch", "no conversion"),
    ),
    _Grid(
        "Sidefetch itself",
        (
            _Row(r"memory of Sidefetch", "memory"),
            _Row(r"(an idle client of [\d,]+ partitions): memory of a client", "memory of {0}"),
            _Row(r"(long poll memory, .*): peak memory", "{0}: peak"),
            _Row(r"(memory while converting): peak", "{0}: peak"),
            _Row(r"idle CPU, ([\d,]+) partitions, Fetch v11", "an idle fetch of {0} partitions: CPU"),
            _Row(r"(1 % busy), Fetch v11: CPU", "{0}: CPU of a fetch"),
            _Row(r"(1 % busy), Fetch v11: bytes at the broker", "{0}: bytes at the broker"),
            _Row(r"(5 ms away, .*)", "brokers {0}"),
            _Row(r"start: (.*)", "start: {0}"),
            _Row(r"(TLS, reading 1 KiB records)", "{0}"),
            _Row(r"(telemetry, reading 1 KiB records)", "{0}"),
            _Row(r"(closest wake, .*): delivery, p50", "{0}: from writing a record to its arrival, p50"),
            _Row(r"(v2 to v1, \d+ B, none|v1 to v2, \d+ B): speed", "converting alone, {0}"),
            _Row(r"(\d+) partitions: CPU of a fetch", "an idle fetch of {0} partitions, without sockets: CPU"),
        ),
    ),
)


_SUMMARY: Final = _Grid(
    "case",
    (
        _Row(r"idle, (1,000) partitions", "fetch of {0} idle partitions, both ways"),
        _Row(
            r"long poll idle, (1,000) partitions: fetches at the broker",
            "fetches of an idle consumer of {0} partitions, at the broker",
        ),
        _Row(
            r"long poll idle, (1,000) partitions: bytes at the broker, both ways",
            "bytes of that consumer, at the broker",
        ),
        _Row(
            rf"long poll wake, librdkafka: {_DELIVERY}",
            "delivery to librdkafka on 1,000 idle partitions, p50 and p99",
        ),
        _Row(r"reading 1 KiB records, (1) client: speed", "throughput, {0} client, records of 1 KiB"),
        _Row(r"reading 1 KiB records, (16) clients: speed", "throughput, {0} clients"),
        _Row(r"reading 1 KiB records, (1) client: CPU of the proxy", "CPU of the proxy, {0} client"),
        _Row(r"one record a fetch, in order: p(?:50|99)", "latency of one record per fetch, p50 and p99"),
        _Row(
            r"500 clients of 4 idle partitions: fetches at the broker",
            "fetches of 500 clients of 4 idle partitions",
        ),
        _Row(
            r"an idle client of (1,000) partitions: memory of a client",
            "memory of an idle client of {0} partitions",
        ),
        _Row(r"start: until its first answer", "start, until the first response"),
    ),
    _PROXIES,
)


def summary(run: Run) -> str:
    """Return the README's part: the machine, the noise and the most important cases."""
    return "\n\n".join(["\n".join(_head(run)), _table(_SUMMARY, run["cases"])]) + "\n"


def digest(run: Run) -> str:
    """Return a head with the machine, the tables, and the expectations that are not met."""
    parts = ["\n".join(_head(run)), *(table for grid in _GRIDS if (table := _table(grid, run["cases"])))]
    return "\n\n".join([*parts, "\n".join(_missed(run["cases"]))]) + "\n"


def _head(run: Run) -> Iterator[str]:
    at = datetime.fromisoformat(run["at"])
    yield f"Medians of one {'quick ' if run['quick'] else ''}run of {at:%d %B %Y}, commit `{run['commit']}`."
    yield "On other machines, expect similar ratios, not similar figures.\n"
    proxies = [f"Kroxylicious {run['kroxylicious']}"]
    if run["haproxy"]:
        proxies.insert(0, f"HAProxy {_version(run['haproxy'])}")
    yield f"- {run['cpu']}, {run['cores']} cores, {run['system']}; Python {run['python']}."
    yield f"- Kafka {run['kafka']}, three brokers on loopback; {' and '.join(proxies)} with one thread each."
    before, after = run["noise"]["before"], run["noise"]["after"]
    yield (
        f"- Noise: a constant loop took {before['median_ms']:.3g} ms before, {before['most_ms']:.3g} at most, and "
        f"{after['median_ms']:.3g} after, {after['most_ms']:.3g} at most;"
    )
    yield f"  {run['noise']['steal']:.2%} of the CPU went to other guests of the host."


def _version(reported: str) -> str:
    """The first thing in it that looks like one."""
    found = re.search(r"\d+(?:\.\d+)+", reported)
    return found[0] if found else reported


def _table(grid: _Grid, cases: Sequence[Run]) -> str:
    """Nothing, if the run has none of it."""
    rows: dict[str, list[Run]] = {}
    for row in grid.rows:
        for case in cases:
            if found := re.fullmatch(row.case, case["case"]):
                rows.setdefault(row.label.format(*found.groups()), []).append(case)
    if not rows:
        return ""
    columns = [
        column for column in grid.columns if any(column in case["ways"] for each in rows.values() for case in each)
    ]
    head = f"| {grid.title} | {' | '.join(columns)} |" if grid.columns else f"| {grid.title} | |"
    lines = [head, "|---" * (1 + max(len(columns), 1)) + "|"]
    for label, each in rows.items():
        cells = [_cell(each, column) for column in columns] or [_all_ways(each)]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _all_ways(cases: Sequence[Run]) -> str:
    ways = list(cases[0]["ways"])
    if ways == ["Sidefetch"]:
        return _cell(cases, "Sidefetch")
    return ", ".join(f"{way}: {_cell(cases, way)}" for way in ways)


def _cell(cases: Sequence[Run], way: str) -> str:
    having = [case for case in cases if way in case["ways"]]
    if not having:
        return ""
    unit = having[0]["unit"]
    *others, last = (figure_text(case["ways"][way]["median"]) for case in having)
    values = f"{', '.join(others)} and {last}" if others else last
    return f"{values}{'' if unit.startswith('/') else ' '}{unit}".rstrip()


def _missed(cases: Sequence[Run]) -> Iterator[str]:
    expected = [expectation for case in cases for expectation in case["expectations"]]
    missed = [each["text"] for each in expected if not each["is_met"]]
    met = f"Of {len(expected)} expectations {len(expected) - len(missed)} were met"
    if not missed:
        yield f"{met}."
        return
    yield f"{met}; these were not:\n"
    yield from (f"- {text}" for text in missed)
