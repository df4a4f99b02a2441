"""What places tell of the rack that this is in. Pure: their texts come in, a name goes out or why there is none."""

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
    "rack_name",
    "zone_in_file",
    "zone_in_node",
]

KUBERNETES_HOST: Final = "KUBERNETES_SERVICE_HOST"
"""In the environment of every pod."""
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
"""Of nodes in Kubernetes; from 1.35 on of pods too (KEP-4742)."""


@attrs.frozen
class RackMiss:
    """A place that told no rack."""

    place: str
    why: str
    remedy: str = ""
    """What to do about it; empty where the place is simply not there, as most are on most machines."""

    def __str__(self) -> str:
        return f"{self.place}: {self.why}"


@attrs.frozen
class NoRack(Exception):
    """A place tells no rack; its fields are those of ``RackMiss``."""

    why: str
    remedy: str = ""


@attrs.frozen
class RackFound:
    """The rack that this is in, as far as anybody tells it."""

    rack: str | None
    how: str
    """Which place told it; without a rack, why none was looked for, or empty where all places were tried."""
    misses: tuple[RackMiss, ...] = ()
    """The places tried before, or all of them."""

    @property
    def faults(self) -> tuple[RackMiss, ...]:
        """Places that are there and should have told it."""
        return tuple(miss for miss in self.misses if miss.remedy)


def rack_name(text: str) -> str:
    """*text* without blanks around it; raises ValueError where that is no name of a rack."""
    name = text.strip()
    if not name:
        raise ValueError("it is empty")
    try:
        return str(RACK.parse(name))
    except ValueError:
        raise ValueError(f"it holds {len(name)} characters that are no rack; accepted: {RACK.accepts}") from None


def zone_in_file(text: str) -> str:
    """The rack in a file: the only word in it, or its zone where it has labels from the downward API.

    Such a file has a line ``key="value"`` for each label of the pod.

    Raises: ValueError: says why there is none.
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


def zone_in_node(body: bytes, label: str = ZONE_LABEL) -> str:
    """The rack in what the Kubernetes API tells of a node; raises ValueError: says why there is none."""
    try:
        labels: Any = json.loads(body)["metadata"].get("labels") or {}
        zone = labels.get(label)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError("what it answers is no node") from None
    if not isinstance(zone, str):
        raise ValueError(f"the node has no label {label}")
    return rack_name(zone)
