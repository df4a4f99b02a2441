"""Pods as the API has them: mappings as JSON makes them, of any shape until ``check_pod`` has seen them."""

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
"""A pod, or the template of pods: what matters here of both is ``metadata`` and ``spec``."""
Part = Literal["initContainers", "containers", "volumes"]
LISTS: Final[tuple[Part, ...]] = ("initContainers", "containers", "volumes")


def annotations_of(pod: Pod) -> Mapping[str, Any]:
    """Of any shape's; none where there is no place for them."""
    return mapping(mapping(pod.get("metadata")).get("annotations"))


def check_pod(pod: Pod) -> Pod:
    """*pod*, with the shape that all here rely on. Raises: Refused: it has another one."""
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
    """*value*; what is none is an empty one, and the API will say so."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """Those in the list *value*, likewise."""
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def each_container(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Init containers and all others."""
    yield from spec.get("initContainers") or ()
    yield from spec.get("containers") or ()


def named(spec: Mapping[str, Any], part: Part) -> set[str]:
    """The names in one of its lists."""
    return {each["name"] for each in spec.get(part) or ()}


def without_key(things: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The same but for *key*."""
    return {name: value for name, value in things.items() if name != key}
