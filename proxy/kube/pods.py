"""Access to pods as plain JSON mappings, of any shape until ``check_pod`` has checked them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from proxy.kube.errors import InjectionRefused

__all__ = [
    "LISTS",
    "Part",
    "Pod",
    "annotations_of",
    "check_pod",
    "each_container",
    "mapping",
    "mappings",
    "named",
    "without_key",
]

Pod = Mapping[str, Any]
"""A pod, or a pod template; only ``metadata`` and ``spec`` matter here."""
Part = Literal["initContainers", "containers", "volumes"]
LISTS: Final[tuple[Part, ...]] = ("initContainers", "containers", "volumes")


def annotations_of(pod: Pod) -> Mapping[str, Any]:
    """Return the annotations of *pod*, which may be malformed; an empty mapping if it has none."""
    return mapping(mapping(pod.get("metadata")).get("annotations"))


def check_pod(pod: Pod) -> Pod:
    """Return *pod* after checking the shape on which injection relies.

    Its ``spec`` is a mapping with at least one container, and the items of its containers, volumes and ``env`` have
    names.

    Raises: InjectionRefused: the pod has another shape.
    """
    spec = pod.get("spec")
    if not isinstance(spec, Mapping):
        wrong = ["spec: no mapping"]
    else:
        wrong = [f"spec.{part}: no list of things with names" for part in LISTS if not _is_list(spec.get(part))]
        if not spec.get("containers") and not wrong:
            wrong.append("spec.containers: there is none")
        wrong += [
            f"spec.{part}: {each['name']}: env is no list of things with names"
            for part in ("initContainers", "containers")
            if not wrong
            for each in spec.get(part) or ()
            if not _is_list(each.get("env"))
        ]
    if wrong:
        raise InjectionRefused(tuple(wrong))
    return pod


def _is_list(things: object) -> bool:
    if things is None:
        return True
    return isinstance(things, list) and all(
        isinstance(each, Mapping) and isinstance(each.get("name"), str) for each in things
    )


def mapping(value: Any) -> Mapping[str, Any]:
    """Return *value* if it is a mapping, else an empty mapping: the API server reports a wrong type itself."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """Return the items of the list *value* that are mappings; an empty list if *value* is no list."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def each_container(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the init containers and then the containers of a pod's *spec*."""
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def named(spec: Mapping[str, Any], part: Part) -> set[str]:
    """Return the names of the items in the list *part* of a pod's *spec*, such as those of its containers."""
    return {each["name"] for each in spec.get(part) or ()}


def without_key(things: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return *things* as a new dict without the entry *key*, if there is one."""
    return {name: value for name, value in things.items() if name != key}
