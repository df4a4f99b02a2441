"""The answers: analyses of a ledger, each a function from ``LedgerFrames`` to a DataFrame.

Each function returns a lazy query. Each module declares its result columns as ``RESULT``, which no parameter
changes. Sums are multiplied by the rows' ``weight``, so that they are estimates of all rows if the ledger is
sampled. Only ``coverage`` reports missing rows, so check it first.
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
"""The answers' functions by name, in a sensible reading order. Most take parameters, such as prices or
dimensions."""

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
"""The result columns of each answer, by name."""
