"""The parsing of texts that name the rack of this process, and the result of the search for it. Pure."""

import json
from typing import Any, Final

import attrs

from proxy.config.option_types import RACK

__all__ = [
    "KUBERNETES_HOST",
    "ZONE_LABEL",
    "NoRack",
    "RackFound",
    "RackMiss",
    "rack_in_file",
    "rack_in_node",
    "rack_name",
]

KUBERNETES_HOST: Final = "KUBERNETES_SERVICE_HOST"
"""The name of an environment variable that every pod has."""
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
"""The zone label of Kubernetes nodes; since Kubernetes 1.35 also of pods (KEP-4742)."""


@attrs.frozen
class RackMiss:
    """A source that was tried and did not name the rack, with the reason and the remedy."""

    place: str
    """The source, for people."""
    why: str
    """The reason that it has no rack."""
    remedy: str = ""
    """The action that repairs the source; empty if the source does not exist here, which is usual."""

    def __str__(self) -> str:
        return f"{self.place}: {self.why}"


@attrs.frozen
class NoRack(Exception):
    """An error: one source of ``--rack-from`` does not name the rack of this process."""

    why: str
    """The reason that it has no rack."""
    remedy: str = ""
    """The action that repairs the source; empty if the source does not exist here."""


@attrs.frozen
class RackFound:
    """The result of the search for the rack of this process: the rack, its source, and the sources without one."""

    rack: str | None
    """The rack; None if it is not known."""
    how: str
    """The source of the rack; without a rack, the reason that no source was tried, or empty if all were tried."""
    misses: tuple[RackMiss, ...] = ()
    """The sources that were tried before the one with the rack; all sources if none has it."""

    @property
    def faults(self) -> tuple[RackMiss, ...]:
        """The tried sources that exist but do not name a rack, so that they should be corrected."""
        return tuple(miss for miss in self.misses if miss.remedy)


def rack_name(text: str) -> str:
    """Return *text* without blanks around it, as the name of a rack.

    Raises: ValueError: it is empty, longer than 255 characters, or not printable.
    """
    name = text.strip()
    if not name:
        raise ValueError("it is empty")
    try:
        return str(RACK.parse(name))
    except ValueError:
        raise ValueError(
            f"it has {len(name)} characters that are no name of a rack; accepted: {RACK.accepts}"
        ) from None


def rack_in_file(text: str) -> str:
    """Return the rack in *text*, the content of a file for ``--rack-from file:PATH``.

    The file has either one line, the rack, or the labels of a pod in the format of Kubernetes' downward API, a line
    ``key="value"`` for each; the rack is then the label ``topology.kubernetes.io/zone``.

    Raises: ValueError: there is no rack; the message is the reason.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    quoted = [line[:-1].partition('="') for line in lines if line.endswith('"')]
    labels = {key: value for key, sign, value in quoted if sign}
    if labels:
        if ZONE_LABEL not in labels:
            raise ValueError(f"{ZONE_LABEL} is not among its labels (there are {len(labels)})")
        return rack_name(labels[ZONE_LABEL])
    if len(lines) > 1:
        raise ValueError(f"it has {len(lines)} lines that are no labels")
    return rack_name("".join(lines))


def rack_in_node(body: bytes, label: str = ZONE_LABEL) -> str:
    """Return the rack of a Kubernetes node: the value of its *label*.

    Args:   body: the response of the Kubernetes API, the node as JSON.
    Raises: ValueError: there is no rack; the message is the reason.
    """
    try:
        labels: Any = json.loads(body)["metadata"].get("labels") or {}
        zone = labels.get(label)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError("the response is no node") from None
    if not isinstance(zone, str):
        raise ValueError(f"the node has no label {label}")
    return rack_name(zone)
