"""Problems and their remedies."""

import re
from pathlib import Path

from proxy.telemetry.problems import ADVICE, Problems
from tests.telemetry.records import NOW_US

HOUR_US = 3_600_000_000
NET = Path(__file__).parents[2] / "proxy" / "net"


def test_there_is_advice_on_every_warning_and_error_of_the_log() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in NET.rglob("*.py"))
    reported = set(re.findall(r'log\.(?:warning|error)\(\s*"([a-z-]+)"', sources))
    reported |= set(re.findall(r'_count_failure\(\s*"[a-z_]+",\s*"([a-z-]+)"', sources))
    reported |= set(re.findall(r'\b(?:log_event|_log_problem)\(\s*"([a-z-]+)"', sources))

    assert len(reported) > 20
    assert reported <= set(ADVICE)
    assert set(ADVICE) <= reported | {"memory-exhausted", "fetch-memory-exhausted", "connection-forwarded"}


def test_repeated_events_of_one_broker_are_one_problem() -> None:
    problems = Problems()
    for second in range(5):
        problems.add("warning", "fetch-connection-closed", {"node": 1, "reason": f"r{second}"}, NOW_US + second)
    problems.add("warning", "fetch-connection-closed", {"node": 2, "reason": "r"}, NOW_US)

    found = problems.last(NOW_US + 10)
    times = [(each.times, each.first_us, each.last_us) for each in found]
    assert times == [(5, NOW_US, NOW_US + 4), (1, NOW_US, NOW_US)]
    assert found[0].detail == "node 1, reason r4"


def test_problems_are_sorted_by_severity_and_dropped_after_one_hour() -> None:
    problems = Problems()
    problems.add("error", "unhandled-exception", {"client": "c", "trace": "secret"}, NOW_US)
    problems.add("warning", "restart-required", {}, NOW_US + 1)
    problems.add("info", "memory-exhausted", {"limit": "memory", "remedy": "raise it"}, NOW_US + 2)

    found = problems.last(NOW_US + 3)
    assert [each.event for each in found] == ["unhandled-exception", "restart-required", "memory-exhausted"]
    assert found[0].detail == "client c"
    assert found[2].remedy == "raise it"
    assert problems.last(NOW_US + HOUR_US) == found[1:]


def test_the_course_of_things_is_no_problem() -> None:
    problems = Problems()
    problems.add("info", "listening", {}, NOW_US)
    problems.add("info", "broker-unavailable", {}, NOW_US)

    assert not problems.last(NOW_US)


def test_problems_are_bounded_in_number_and_length() -> None:
    problems = Problems()
    for node in range(1000):
        problems.add("warning", "fetch-connection-closed", {"node": node, "reason": "x" * 5000}, NOW_US + node)

    found = problems.last(NOW_US + 1000)
    assert len(found) == 40
    assert found[0].detail.startswith("node 999")
    assert max(len(each.detail) for each in found) <= 303
