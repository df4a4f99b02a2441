"""The committed figures of the last long run."""

import json
from pathlib import Path

from tests.soak.faults import FAULTS

FIGURES = json.loads((Path(__file__).parent / "figures.json").read_text(encoding="utf-8"))


def test_the_long_run_met_every_kind_of_fault_and_lost_nothing() -> None:
    assert set(FIGURES["faults"]) == set(FAULTS)
    assert FIGURES["acknowledged"] > 100_000
    assert all(count >= FIGURES["acknowledged"] for count in FIGURES["read"].values())
    wrong = ("lost", "doubled", "other_records", "verify_differences", "bugs", "leaks", "not_recovered", "wrongs")
    assert not any(FIGURES[name] for name in wrong)
    assert FIGURES["verified"] > 1_000
