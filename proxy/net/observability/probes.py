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
    """The state of the proxy for probes: whether it listens, is stopping, and reaches a broker."""

    is_listening: bool
    """Whether clients can connect."""
    is_stopping: bool
    """Whether the shutdown has begun."""
    reaches_broker: Callable[[], bool]
    """Returns whether a broker responds; called only if a probe needs it, as it may send a broker a request."""


def failure_reason(probe: str, state: ProbeState, *, requires_broker: bool) -> str:
    """Return the reason that *probe*, one of the paths in ``PROBES``, fails (status 503); "" if it succeeds.

    Args: requires_broker: whether readiness also requires that a broker responds.
    """
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
