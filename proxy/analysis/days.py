"""Days, in UTC, whatever the time zone of the session: times in it are microseconds, and never timestamps."""

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

__all__ = ["HOUR_US", "day_of"]

HOUR_US: Final = 3_600_000_000


def day_of(at_us: str) -> Column:
    """The day of the time in column *at_us*. A folded run counts for the day of its end."""
    return F.expr(f"date_from_unix_date(cast({at_us} div {24 * HOUR_US} AS int))")
