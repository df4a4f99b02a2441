"""UTC days of ledger rows: ranges of days that users select, and Spark columns that compute and compare days.

Days do not depend on the time zone of the Spark session, because the ledger's times are microseconds since 1970,
not timestamps.
"""

import re
from datetime import date, timedelta
from typing import Final

import attrs
from pyspark.sql import Column
from pyspark.sql import functions as F

from proxy.errors import ConfigError

__all__ = ["ALL", "HOUR_US", "DayRange", "day_of", "parse_days"]

HOUR_US: Final = 3_600_000_000
"""Microseconds in an hour."""
_AGO: Final = re.compile(r"([0-9]{1,5})d")


def day_of(at_us: str) -> Column:
    """Return a Spark column with the UTC date of the column *at_us*, a time in microseconds since 1970.

    A ledger row that combines a run of fetches has the end of the run as its ``at_us``, so it belongs to that day.
    The date of a null time is null.
    """
    return F.expr(f"date_from_unix_date(cast({at_us} div {24 * HOUR_US} AS int))")


@attrs.frozen
class DayRange:
    """A range of UTC days, including its first and its last day; None as either means no limit."""

    since: date | None = None
    """The first day."""
    until: date | None = None
    """The last day."""

    def contains(self, day: Column) -> Column:
        """Return a boolean Spark column: whether the date in column *day* is in the range, or null (unknown)."""
        held = F.lit(True)
        if self.since is not None:
            held &= day >= F.lit(self.since)
        if self.until is not None:
            held &= day <= F.lit(self.until)
        return day.isNull() | held


ALL: Final = DayRange()
"""The range of all days."""


def parse_days(since: str | None, until: str | None, today: date) -> DayRange:
    """Parse the values of ``--since`` and ``--until`` into a range of days that includes both of them.

    Each value is a date such as ``2026-11-21``, ``today``, ``yesterday``, or ``7d`` for seven days before *today*.
    None means no limit.

    Raises: ConfigError: a text is none of these, or *since* is after *until*.
    """
    days = DayRange(_day("since", since, today), _day("until", until, today))
    if days.since and days.until and days.since > days.until:
        raise ConfigError(
            f"since: {days.since} is after --until {days.until}; accepted: a day before it, or the same"
        )
    return days


def _day(name: str, text: str | None, today: date) -> date | None:
    if text is None:
        return None
    ago = _AGO.fullmatch({"today": "0d", "yesterday": "1d"}.get(text, text))
    try:
        return today - timedelta(int(ago[1])) if ago else date.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{name}: {text!r} is not a day; accepted: 2026-11-21, today, yesterday, or 7d for seven days ago"
        ) from None
