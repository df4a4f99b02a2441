"""All results for a report: bounded, and already computed by Spark."""

import attrs

from proxy.analysis.report.model import ReportScope
from proxy.analysis.report.sections.anomalies import Anomalies
from proxy.analysis.report.sections.conversion import ConversionFigures
from proxy.analysis.report.sections.coverage import CoverageFigures
from proxy.analysis.report.sections.readiness import Readiness
from proxy.analysis.report.sections.savings import Savings
from proxy.analysis.report.sections.sessions import Sessions
from proxy.analysis.report.sections.waiting import Waiting
from proxy.analysis.report.sections.zones import Zones

__all__ = ["QueryResults"]


@attrs.frozen
class QueryResults:
    """The results by question."""

    read: CoverageFigures
    savings: Savings
    zones: Zones
    readiness: Readiness
    conversion: ConversionFigures
    sessions: Sessions
    waiting: Waiting
    anomalies: Anomalies

    @property
    def about(self) -> ReportScope:
        return self.read.about
