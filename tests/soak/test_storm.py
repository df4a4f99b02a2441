"""The short form: a few faults, real clients, the judge."""

from typing import Final

import pytest

from tests.prerequisites import require
from tests.soak.storm import Act, as_json, weather_out

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SEED: Final = 7
ACTS: Final = (
    Act("streams-cut", 3.0),
    Act("broker-killed", 3.0),
    Act("connections-half-open", 4.0),
    Act("sidecar-killed", 1.0),
    Act("broker-stalled", 5.0),
    Act("clock-jumped", 1.5),
    Act("sessions-evicted", 1.0),
)


def test_nothing_is_lost_or_doubled_in_a_short_storm() -> None:
    require("java", "maven", "node", "c")
    lines: list[str] = []

    report = weather_out(iter(ACTS), SEED, show_progress=lines.append, watch=False)

    assert report.is_good, "\n".join([*lines, as_json(report)])
    assert report.acknowledged > 1_000
    assert all(count >= report.acknowledged for count in report.read.values()), as_json(report)
    assert report.verified > 20
