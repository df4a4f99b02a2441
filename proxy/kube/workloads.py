"""The search for pods in Kubernetes manifests: pods themselves, and pod templates of workloads."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from proxy.kube.annotations import OPTION_PREFIX, OTEL_PREFIX, PREFIX
from proxy.kube.pods import annotations_of, mapping

__all__ = ["PodLocation", "find_pods"]

_TEMPLATE: Final = ("spec", "template")
_PATHS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("", "Pod"): (),
    ("", "ReplicationController"): _TEMPLATE,
    ("apps", "DaemonSet"): _TEMPLATE,
    ("apps", "Deployment"): _TEMPLATE,
    ("apps", "ReplicaSet"): _TEMPLATE,
    ("apps", "StatefulSet"): _TEMPLATE,
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
    ("batch", "Job"): _TEMPLATE,
}
"""The path of the pod template, by group and kind."""


@attrs.frozen
class PodLocation:
    """The location of a pod or a pod template in a manifest's document, with a name and warnings for messages."""

    path: tuple[str | int, ...]
    """The keys and indexes from the document's root to the pod or template."""
    item: tuple[str | int, ...]
    """The path of the object that contains it, such as a Deployment; a List may have many."""
    name: str
    """A name for messages, such as ``Deployment/orders``."""
    warnings: tuple[str, ...]
    """Warnings about annotations of a workload that belong to its pod template."""


def find_pods(document: Any, item: tuple[str | int, ...] = ()) -> Iterator[PodLocation]:
    """Yield the location of each pod and pod template in the decoded *document*, in order.

    It searches an object (a Pod, or a workload such as a Deployment) and the items of a List; other documents have
    none. *item* is the path of *document* within the whole, for the recursion into lists.
    """
    if not isinstance(document, Mapping):
        return
    kind = str(document.get("kind"))
    if kind.endswith("List") and isinstance(document.get("items"), list):
        for index, each in enumerate(document["items"]):
            yield from find_pods(each, (*item, "items", index))
    path = _PATHS.get((str(document.get("apiVersion")).rpartition("/")[0], kind))
    if path is not None and isinstance(_value_at(document, path), Mapping):
        metadata = mapping(document.get("metadata"))
        name = metadata.get("name") or metadata.get("generateName") or ""
        warnings = tuple(_misplaced_annotations(annotations_of(document), path)) if path else ()
        yield PodLocation((*item, *path), item, f"{kind}/{name}", warnings)


def _misplaced_annotations(annotations: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    for key in annotations:
        if str(key).startswith((PREFIX, OPTION_PREFIX, OTEL_PREFIX)):
            there = ".".join((*path, "metadata.annotations"))
            yield f"metadata.annotations: {key} says nothing here; put it into {there}"


def _value_at(document: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        document = mapping(document).get(key)
    return document
