"""What can be asked of the ledgers: functions of frames, each with the columns that it answers in.

Each is a plan and runs nothing; each module declares its ``RESULT``, which no parameter changes. Sums heed the
rows' ``weight``. What a ledger lacks is told by none but ``coverage``: ask it first.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from proxy.analysis.answers import (
    anomalies,
    conversion,
    coverage,
    readiness,
    savings,
    sessions,
    waiting,
    zones,
)
from proxy.analysis.frames import LedgerFrames

__all__ = ["ANSWERS", "RESULTS"]

ANSWERS: Final[Mapping[str, Callable[[LedgerFrames], DataFrame]]] = MappingProxyType(
    {
        "coverage": coverage.coverage,
        "savings": savings.savings,
        "zones": zones.zones,
        "conversion": conversion.conversion,
        "readiness": readiness.readiness,
        "sessions": sessions.sessions,
        "waiting": waiting.waiting,
        "anomalies": anomalies.anomalies,
    }
)
"""By name, in the order in which they are best read. Most take parameters: prices, and what a row is about."""

RESULTS: Final[Mapping[str, StructType]] = MappingProxyType(
    {
        "coverage": coverage.RESULT,
        "savings": savings.RESULT,
        "zones": zones.RESULT,
        "conversion": conversion.RESULT,
        "readiness": readiness.RESULT,
        "sessions": sessions.RESULT,
        "waiting": waiting.RESULT,
        "anomalies": anomalies.RESULT,
    }
)
"""The columns of each."""
