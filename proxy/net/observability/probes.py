"""Responses to Kubernetes' probes.

========= ========================================================= ====================================
path      status 200                                                status 503
========= ========================================================= ====================================
/startupz clients can connect                                       before
/readyz   clients can connect, and Sidefetch is not stopping; with  otherwise
          ``--ready-requires-broker``: and a broker responds
/livez    always: the response proves that the event loop runs      never; a blocked loop sends nothing
========= ========================================================= ====================================

No probe depends on Kafka, except for a gateway's: an outage of Kafka would otherwise remove applications from their
services, or restart them, which does not help.
"""

from collections.abc import Callable
from typing import Final

import attrs

__all__ = ["PROBES", "ProbeState", "failure_reason"]

PROBES: Final = ("/startupz", "/readyz", "/livez")


@attrs.frozen
class ProbeState:
    """State of the proxy for probes."""

    is_listening: bool
    is_stopping: bool
    reaches_broker: Callable[[], bool]
    """Called only for a probe that needs it: the call may cause a request to a broker."""


def failure_reason(probe: str, state: ProbeState, *, requires_broker: bool) -> str:
    """Return the reason why one of ``PROBES`` fails (status 503); empty for status 200."""
    if probe == "/livez":
        return ""
    if not state.is_listening:
        return "no: Sidefetch does not listen yet"
    if probe == "/startupz":
        return ""
    if state.is_stopping:
        return "no: Sidefetch is stopping"
    if requires_broker and not state.reaches_broker():
        return "no: no broker responds"
    return ""
