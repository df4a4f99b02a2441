"""Answers probes as Kubernetes makes them.

========= ========================================================= ====================================
path      200 where                                                 503 where
========= ========================================================= ====================================
/startupz clients can connect                                       not yet
/readyz   clients can connect, and it has not been told to stop;    else
          with ``--ready-requires-broker``: and a broker answers
/livez    always: the event loop has turned, or nobody had answered never; a loop that stands says nothing
========= ========================================================= ====================================

None of them asks Kafka, but for the gateway's: an outage of Kafka would take applications out of their services, or
restart them, which helps nobody.
"""

from collections.abc import Callable
from typing import Final

import attrs

__all__ = ["PROBES", "ProbeState", "failure_reason"]

PROBES: Final = ("/startupz", "/readyz", "/livez")


@attrs.frozen
class ProbeState:
    """What probes ask for."""

    is_listening: bool
    is_stopping: bool
    reaches_broker: Callable[[], bool]
    """Asked only where it matters: it may have a broker asked."""


def failure_reason(probe: str, state: ProbeState, *, requires_broker: bool) -> str:
    """Why one of ``PROBES`` is answered with 503; empty for 200."""
    if probe == "/livez":
        return ""
    if not state.is_listening:
        return "no: does not listen yet"
    if probe == "/startupz":
        return ""
    if state.is_stopping:
        return "no: is stopping"
    if requires_broker and not state.reaches_broker():
        return "no: no broker answers"
    return ""
