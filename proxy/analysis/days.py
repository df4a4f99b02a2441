"""Days, in UTC, whatever the time zone of the session: times in it are microseconds, and never timestamps."""

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
    """The day of the time in column *at_us*. A folded run counts for the day of its end."""
    return F.expr(f"date_from_unix_date(cast({at_us} div {24 * HOUR_US} AS int))")


@attrs.frozen
class DayRange:
    """From a day to another, both of them included. None: however early, however late."""

    since: date | None = None
    until: date | None = None

    def hold(self, day: Column) -> Column:
        """Whether *day* is one of them. One that is null is: nobody knows when that was."""
        held = F.lit(True)
        if self.since is not None:
            held &= day >= F.lit(self.since)
        if self.until is not None:
            held &= day <= F.lit(self.until)
        return day.isNull() | held


ALL: Final = DayRange()


def parse_days(since: str | None, until: str | None, today: date) -> DayRange:
    """Of what was given as ``--since`` and ``--until``: ``2026-11-21``, ``today``, ``yesterday``, or ``7d`` ago.

    Raises: ConfigError: one is no day, or there is none between them.
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
            f"{name}: {text!r} is no day; accepted: 2026-11-21, today, yesterday, or 7d for seven days ago"
        ) from None
