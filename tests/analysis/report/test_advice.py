"""The advice of the report, by its findings."""

from typing import Any

import attrs
import pytest

from proxy.analysis.answers.zones import Prices
from proxy.analysis.report.advice import MOST, advice
from proxy.analysis.report.build import write_report
from proxy.analysis.report.model import ReportScope
from proxy.analysis.report.ranking import Ranking, Row
from proxy.analysis.report.results import QueryResults
from proxy.analysis.report.sections.anomalies import Anomalies
from proxy.analysis.report.sections.conversion import ConversionFigures
from proxy.analysis.report.sections.coverage import CoverageFigures
from proxy.analysis.report.sections.readiness import Readiness
from proxy.analysis.report.sections.savings import Savings
from proxy.analysis.report.sections.sessions import Sessions
from proxy.analysis.report.sections.waiting import DELAYS, Waiting
from proxy.analysis.report.sections.zones import Zones

DAY_US = 86_400_000_000
NOBODY = Ranking((), 0, None)


def ranking(*rows: Row) -> Ranking:
    return Ranking(rows, len(rows), None)


def found(**answers: Any) -> QueryResults:
    """Return the findings of three days without problems, except for *answers*."""
    about = ReportScope(("c",), 1, 10, 0, 3 * DAY_US, 1000, 0, 0, 1.0)
    fine: dict[str, Any] = {
        "read": CoverageFigures(about, (), NOBODY, (), 0),
        "savings": Savings((), NOBODY, NOBODY),
        "zones": Zones(NOBODY, Prices()),
        "readiness": Readiness(NOBODY, 5, 10**9),
        "conversion": ConversionFigures(NOBODY),
        "sessions": Sessions((), NOBODY),
        "waiting": Waiting((), NOBODY),
        "anomalies": Anomalies(NOBODY),
    }
    return QueryResults(**fine | answers)


def breaking(*clients: tuple[str, int]) -> Readiness:
    rows = [
        {"client_id": name, "software": "", "bytes": size, "connections": 1, "versions": ["Fetch v2"]}
        for name, size in clients
    ]
    return Readiness(ranking(*rows), 9, 10**12)


def pair(source: str, reader: str, gib: float, **fields: Any) -> Row:
    size = round(gib * 2**30)
    is_crossing = None if "unknown" in (source, reader) else source != reader
    cost = gib * 0.02 if is_crossing else 0.0
    names = {"source_rack": source, "reader_rack": reader, "is_crossing": is_crossing}
    sums = {"bytes": size, "record_bytes": size, "cost": cost, "closest_bytes": 0, "closest_saved": 0.0}
    return names | sums | fields


def test_where_all_is_well_nothing_is_advised() -> None:
    assert advice(found()) == ()


def test_breaking_clients_come_first_and_each_rule_is_limited() -> None:
    it = found(
        readiness=breaking(("one", 600), ("two", 300), ("three", 100)),
        zones=Zones(ranking(pair("a", "b", 1000)), Prices()),
    )

    advised = advice(it)

    assert ["one" in advised[0].title, "two" in advised[1].title, "rack" in advised[2].title] == [True] * 3
    assert len(advised) == 3
    assert advised[0].brings.value == 0.6


def test_cross_rack_cost_is_per_month_and_names_largest_rack_pair() -> None:
    (advised,) = advice(
        found(zones=Zones(ranking(pair("a", "b", 1000), pair("b", "b", 5), pair("c", "b", 1)), Prices()))
    )

    assert advised.brings.value == pytest.approx(1001 * 0.02 * 10)
    assert "between a and b" in advised.why


def test_readers_without_rack_are_reported_with_possible_cost() -> None:
    (advised,) = advice(found(zones=Zones(ranking(pair("a", "unknown", 100)), Prices())))

    assert "rack of each Sidefetch" in advised.title
    assert advised.brings.value == pytest.approx(100 * 0.02 * 10)


def test_cents_are_not_worth_a_line() -> None:
    assert advice(found(zones=Zones(ranking(pair("a", "b", 1)), Prices()))) == ()


def test_conversion_advice_reports_monthly_cpu() -> None:
    row = {"client_id": "old", "software": "kafka-python", "converted_to": 1, "in_bytes": 10**12, "cpu_s": 3600.0}
    (advised,) = advice(found(conversion=ConversionFigures(ranking(row))))

    assert advised.brings.value == 10 * 3600 * 1e6


def test_evicted_or_refused_sessions_lead_to_advice_on_slots() -> None:
    side = {"side": "upstream", "created": 90, "evicted": 20, "refused": 10, "hit_ratio": 0.9}
    (advised,) = advice(found(sessions=Sessions((side,), NOBODY)))

    assert advised.brings.value == 10
    assert "slots" in advised.title


@pytest.mark.parametrize(("cause", "remedy"), [("budget", "memory"), ("throttle", "quotas"), ("convert", "CPU")])
def test_main_cause_of_delay_is_reported_with_remedy(cause: str, remedy: str) -> None:
    waits = tuple({"cause": each, "total_s": 60.0 if each == cause else 1.0} for each in DELAYS)
    (advised,) = advice(found(waiting=Waiting(waits, NOBODY)))

    assert remedy in advised.title
    assert advised.brings.value == 60 / 64


def test_lost_rows_come_last() -> None:
    it = found(readiness=breaking(("one", 1)))
    lost = attrs.evolve(it.read, about=attrs.evolve(it.about, lost_count=1000))
    advised = advice(attrs.evolve(it, read=lost))

    assert advised[-1].brings.value == 0.5


def test_there_are_five_at_most() -> None:
    run = {"client_id": "x", "explanation": "read much", "z": -9.0, "past": "all hours", "past_hours": 30}
    side = {"side": "upstream", "created": 90, "evicted": 20, "refused": 10, "hit_ratio": 0.9}
    it = found(
        readiness=breaking(("one", 600), ("two", 300)),
        zones=Zones(ranking(pair("a", "b", 1000), pair("a", "unknown", 1000)), Prices()),
        sessions=Sessions((side,), NOBODY),
        anomalies=Anomalies(ranking(run, run)),
    )

    assert len(advice(it)) == MOST


def test_report_without_findings_has_empty_tables() -> None:
    report = write_report(found())

    assert [section.name for section in report.sections][-1] == "read"
    assert all(not table.rows for section in report.sections for table in section.tables)
