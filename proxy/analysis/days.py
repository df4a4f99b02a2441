"""Days in UTC.

They do not depend on the time zone of the Spark session, because times are microseconds since 1970, not timestamps.
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
_AGO: Final = re.compile(r"([0-9]{1,5})d")


def day_of(at_us: str) -> Column:
    """Return the UTC day of the time in column *at_us*. A folded run belongs to the day of its end."""
    return F.expr(f"date_from_unix_date(cast({at_us} div {24 * HOUR_US} AS int))")


@attrs.frozen
class DayRange:
    """A range of days, both ends included. None as an end: no limit."""

    since: date | None = None
    until: date | None = None

    def hold(self, day: Column) -> Column:
        """Return the condition that *day* is in the range. A null day, which is unknown, fulfils it."""
        held = F.lit(True)
        if self.since is not None:
            held &= day >= F.lit(self.since)
        if self.until is not None:
            held &= day <= F.lit(self.until)
        return day.isNull() | held


ALL: Final = DayRange()
"""The range of all days."""


def parse_days(since: str | None, until: str | None, today: date) -> DayRange:
    """Parse ``--since`` and ``--until``: ``2026-11-21``, ``today``, ``yesterday``, or ``7d`` for seven days ago.

    Raises: ConfigError: a text is not a day, or *since* is after *until*.
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
