"""All that a report is made from: bounded, and asked of Spark already."""

import attrs

from proxy.analysis.report.model import About
from proxy.analysis.report.sections.anomalies import Anomalies
from proxy.analysis.report.sections.conversion import Conversion
from proxy.analysis.report.sections.coverage import Read
from proxy.analysis.report.sections.readiness import Readiness
from proxy.analysis.report.sections.savings import Savings
from proxy.analysis.report.sections.sessions import Sessions
from proxy.analysis.report.sections.waiting import Waiting
from proxy.analysis.report.sections.zones import Zones

__all__ = ["Found"]


@attrs.frozen
class Found:
    """An answer each."""

    read: Read
    savings: Savings
    zones: Zones
    readiness: Readiness
    conversion: Conversion
    sessions: Sessions
    waiting: Waiting
    anomalies: Anomalies

    @property
    def about(self) -> About:
        return self.read.about
