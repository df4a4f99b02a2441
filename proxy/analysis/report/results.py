"""The results of all queries of a report: of bounded size, and already collected from Spark."""

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
    """The results of all Spark queries of a report, one for each of its sections."""

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
