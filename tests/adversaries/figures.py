"""The kept figures of the last run of all attacks, and the table that is made from them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.adversaries.attacks import ATTACKS
from tests.adversaries.trial import Verdict
from tests.bench.machine import cpu_model
from tests.checkout import commit

__all__ = ["KEPT", "as_json", "kept", "markdown_table"]

KEPT: Final = Path(__file__).parent / "figures.json"


def as_json(verdicts: Sequence[Verdict], seconds: float) -> str:
    """Return the figures of a run, with its commit and machine.

    Args: seconds: the duration of each attack.
    """
    trials = [each.as_row() for each in verdicts]
    figures = {"commit": commit(), "cpu": cpu_model(), "seconds": seconds, "trials": trials}
    return json.dumps(figures, indent=1) + "\n"


def kept() -> dict[str, Any]:
    """Return the kept figures, as ``as_json`` has written them."""
    figures: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return figures


def markdown_table() -> str:
    """Return the kept figures as a Markdown table, an attack in each row."""
    lines = [
        "| attack | p99 in ms, without and with it | new clients | large requests | `/livez` |"
        " MiB before, peak, after | not held |",
        "|---|---|---|---|---|---|---|",
        *(_row(trial) for trial in kept()["trials"]),
    ]
    return "\n".join(lines) + "\n"


def _row(trial: dict[str, Any]) -> str:
    purpose = (ATTACKS[trial["attack"]].__doc__ or "").partition("\n")[0].rstrip(".")
    cells = (
        f"`{trial['attack']}`: {purpose}",
        f"{trial['p99_before_ms']:.0f}, {trial['p99_ms']:.0f}",
        f"{trial['arrival_p99_ms']:.0f}",
        f"{trial['large_ms']}" if "large_ms" in trial else "",
        f"{trial['livez_ms']}",
        f"{trial['rested_mib']}, {trial['peak_mib']}, {trial['left_mib']}",
        "; ".join(trial["problems"]),
    )
    return f"| {' | '.join(cells)} |"
