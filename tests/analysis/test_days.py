import json
from collections.abc import Iterable
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from proxy.analysis import ingest, layout
from proxy.analysis.days import ALL, DayRange, parse_days
from proxy.errors import ConfigError
from proxy.telemetry.ledger import Row
from tests.analysis.rows import row, write_lines

_TODAY = date(2026, 11, 22)
_DAY_US = 86_400_000_000


@pytest.mark.parametrize(
    ("since", "until", "days"),
    [
        (None, None, ALL),
        ("2026-11-01", None, DayRange(date(2026, 11, 1), None)),
        ("yesterday", "today", DayRange(date(2026, 11, 21), _TODAY)),
        ("7d", "0d", DayRange(date(2026, 11, 15), _TODAY)),
        (None, "2026-11-01", DayRange(None, date(2026, 11, 1))),
    ],
)
def test_days_are_parsed_from_dates_or_ages(since: str | None, until: str | None, days: DayRange) -> None:
    assert parse_days(since, until, _TODAY) == days


@pytest.mark.parametrize(
    ("since", "until", "why"),
    [
        ("last week", None, "since: 'last week' is not a day; accepted: 2026-11-21, today, yesterday, or 7d"),
        (None, "2026-13-01", "until: '2026-13-01' is not a day"),
        ("today", "yesterday", "since: 2026-11-22 is after --until 2026-11-21; accepted: a day before it"),
    ],
)
def test_invalid_day_is_refused_with_accepted_values(since: str | None, until: str | None, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_days(since, until, _TODAY)


def _written(path: Path, rows: Iterable[Row], *others: str) -> None:
    write_lines(path, [*map(json.dumps, rows), *others])


def _days_of(spark: SparkSession, path: Path, days: DayRange) -> list[int]:
    found = ingest.read(spark, str(path), days).ledger.fetch
    return sorted(each["at_us"] // _DAY_US for each in found.select("at_us").collect())


@pytest.mark.long
def test_only_requested_days_are_read_with_all_bad_rows(spark: SparkSession, tmp_path: Path) -> None:
    lines = [row("fetch", seq=day, at_us=day * _DAY_US + 5) for day in range(1, 6)]
    _written(tmp_path / "in" / "p-0-1.jsonl", lines, "torn")
    layout.write(ingest.read_wide(spark, str(tmp_path / "in")), str(tmp_path / "out"))
    days = DayRange(date(1970, 1, 3), date(1970, 1, 5))

    for folder in ("in", "out"):
        assert _days_of(spark, tmp_path / folder, days) == [2, 3, 4]
        assert _days_of(spark, tmp_path / folder, DayRange(since=date(1970, 1, 5))) == [4, 5]
        assert ingest.read(spark, str(tmp_path / folder), days).bad.count() == 1
    # Folders of other days are not opened.
    for other in (tmp_path / "out").glob("record=fetch/day=1970-01-0[26]/*/*.parquet"):
        other.write_bytes(b"no Parquet")
    assert _days_of(spark, tmp_path / "out", days) == [2, 3, 4]


def test_overwriting_some_days_keeps_other_days(spark: SparkSession, tmp_path: Path) -> None:
    out = tmp_path / "out"
    _written(tmp_path / "old.jsonl", [row("fetch", seq=day, at_us=day * _DAY_US) for day in (1, 2, 3)])
    layout.write(ingest.read_wide(spark, str(tmp_path / "old.jsonl")), str(out))
    _written(
        tmp_path / "new.jsonl", [row("fetch", seq=seq, at_us=seq % 2 * _DAY_US + 2 * _DAY_US) for seq in (2, 9)]
    )
    rows = ingest.read_wide(spark, str(tmp_path / "new.jsonl"))

    layout.write(rows, str(out), "overwrite", all_days=False)
    assert _days_of(spark, out, ALL) == [1, 2, 3]
    assert [each["seq"] for each in ingest.read(spark, str(out)).ledger.fetch.orderBy("seq").collect()] == [1, 2, 9]

    layout.write(rows, str(out), "overwrite")
    assert _days_of(spark, out, ALL) == [2, 3]
