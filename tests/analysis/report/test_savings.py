"""The report's section on savings, without Spark: its sentences and shares."""

from datetime import date
from typing import Any

import pytest

from proxy.analysis.report.model import ReportSection
from proxy.analysis.report.ranking import Ranking
from proxy.analysis.report.sections.savings import Savings, section

NOBODY = Ranking((), 0, None)


def section_of(**fields: Any) -> ReportSection:
    """Return the section about one day; columns that a test does not name are 0."""
    names = ("exchanges", "fetches", "saved_requests", "dropped_bytes", "direct_looks", "saved_looks")
    day = {"day": date(2026, 1, 1), "is_modelled": False, "is_sampled": False, **dict.fromkeys(names, 0), **fields}
    return section(Savings((day,), NOBODY, NOBODY))


def share_of_talk(found: ReportSection) -> float | None:
    (figure,) = [each for each in found.figures if each.title == "Of talk, without records"]
    return figure.value


def test_section_states_how_often_shared_records_were_delivered() -> None:
    records = {"record_bytes": 1_000_000, "delivered_bytes": 20_000_000}

    found = section_of(direct_bytes=20_400_000, actual_bytes=1_100_000, saved_bytes=19_300_000, **records)

    assert "1 MB of records came from brokers, and 20 MB went to clients, 20.0 times as many" in found.answer
    assert share_of_talk(found) == pytest.approx((400_000 - 100_000) / 400_000)


def test_section_states_that_records_are_on_both_sides_where_clients_do_not_share() -> None:
    records = {"record_bytes": 1_000_000, "delivered_bytes": 990_000}

    found = section_of(direct_bytes=1_390_000, actual_bytes=1_100_000, saved_bytes=290_000, **records)

    assert "Records, which have to be sent either way, are 1 MB of both." in found.answer
    assert share_of_talk(found) == pytest.approx((400_000 - 100_000) / 400_000)


def test_section_about_a_ledger_without_records_has_a_sentence() -> None:
    found = section_of(direct_bytes=5, actual_bytes=3, saved_bytes=2, record_bytes=0, delivered_bytes=7)

    assert "0 B of both" in found.answer
