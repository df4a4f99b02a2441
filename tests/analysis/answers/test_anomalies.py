from typing import Any

import pytest
from pyspark.sql import SparkSession

from proxy.analysis.answers.anomalies import anomalies
from proxy.telemetry.ledger import Row
from tests.analysis.rows import ledger_of, row

HOUR_US = 3_600_000_000
MB = 1_000_000
MORNING = 10
END = 5 * 168 + MORNING + 1


def exchange(hour: int, client_id: str | None, **fields: Any) -> Row:
    connection_id = len(client_id or "")
    return row("exchange", at_us=hour * HOUR_US + 1, client_id=client_id, connection_id=connection_id, **fields)


def test_clients_that_deviate_from_their_past_are_reported_with_explanation(spark: SparkSession) -> None:
    weekly = [exchange(week * 168 + MORNING, "weekly", source_bytes=(100 + week) * MB) for week in range(5)]
    young = [exchange(hour, "younger", source_bytes=50 * MB, exchanges=1_000) for hour in range(END - 40, END - 2)]
    new = [exchange(hour, "new", source_bytes=50 * MB) for hour in range(END - 24, END - 1)]
    ledger = ledger_of(
        spark,
        *weekly,
        exchange(END - 1, "weekly", source_bytes=400 * MB),
        *young,  # and then it is silent
        *new,  # which has no past
        exchange(END - 1, "new", source_bytes=900 * MB),
        exchange(0, None),
        exchange(END - 1, None, with_data=1, total_us=9 * MB, poll_us=8 * MB, errors=[{"code": 3, "n": 500}]),
        row("session", at_us=(END - 1) * HOUR_US, side="upstream", event="evicted", session_id=1),
        *(row("session", at_us=(END - 1) * HOUR_US, side="upstream", event="reset", node=2) for _ in range(20)),
        row("session", at_us=(END - 1) * HOUR_US, side="client", event="reset"),
        exchange(END, "weekly", source_bytes=9_000 * MB),  # in the hour that is not over
    )

    odd = {(each["client_id"], each["metric"]): each for each in anomalies(ledger, judged_hours=2).collect()}

    assert {key: (each["value"], each["usual"], each["past"]) for key, each in odd.items()} == {
        ("weekly", "bytes"): (400 * MB, 102 * MB, "same hour of the week"),
        ("younger", "bytes"): (0, 50 * MB, "all hours"),
        ("younger", "fetches"): (0, 1_000, "all hours"),
        (None, "errors"): (500, 0, "same hour of the week"),
        (None, "sessions_lost"): (21, 0, "same hour of the week"),
    }
    weekly_bytes = odd["weekly", "bytes"]
    assert weekly_bytes["spread"] == pytest.approx(10.2 * MB)  # a tenth of the usual is more than 1.4826 MB
    assert weekly_bytes["past_hours"] == 5
    assert weekly_bytes["explanation"] == (
        "weekly read 400,000,000 bytes of records in the hour from 1970-02-05 10:00 UTC. Usual is 102,000,000"
        " ± 10,200,000 (median of 5 earlier hours, same hour of the week): z = 29.2; the threshold is 6.0."
    )
    assert odd["younger", "bytes"]["z"] == pytest.approx(-10)
    assert odd["younger", "bytes"]["past_hours"] == 38
    assert (weekly_bytes["hours"], odd["younger", "bytes"]["hours"]) == (1, 2)
    assert ", one of 2 such hours in a row. Usual is 50,000,000" in odd["younger", "bytes"]["explanation"]
