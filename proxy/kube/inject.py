"""Injection of the sidecar into a pod that requests it, and its removal: pure, for the webhook and for manifests.

The pod's annotation ``sidefetch.io/status`` records the additions, so that they can be removed, and replaced if the
pod requests something else. A pod that already has the sidecar it requests is not changed: later changes of the
sidecar by others stay.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, cast

import attrs

from proxy.kube import validation, variables
from proxy.kube.annotations import INJECT, PREFIX, STATUS, Defaults, InjectionRequest, injection_request, is_on
from proxy.kube.containers import NAMES, redirect, sidecar, volumes
from proxy.kube.errors import MOST_REASONS, InjectionRefused
from proxy.kube.pods import LISTS, Pod, annotations_of, check_pod, named, without_key

__all__ = ["InjectionResult", "inject", "remove_injection"]


@attrs.frozen
class InjectionResult:
    """The pod after ``inject``, whether it has the sidecar, and warnings for the user who creates it."""

    pod: Pod
    has_sidecar: bool
    warnings: tuple[str, ...] = ()


@attrs.frozen
class _Status:
    """The content of a pod's annotation ``sidefetch.io/status``: the changes that an injection made."""

    digest: str
    """A digest of all additions; if it differs, the injection is done again."""
    address: str
    """The sidecar's address, which replaced the values of variables."""
    env: variables.Was
    names: Mapping[str, list[str]]
    """The names of the additions to each of the pod's lists."""

    @classmethod
    def read(cls, text: object) -> "_Status":
        """Decode the annotation's *text*, and check that injection can have written it: users can set it, too.

        Raises: InjectionRefused: injection did not write it.
        """
        try:
            values = json.loads(cast(str, text))
            env = {str(owner): dict(held) for owner, held in values["env"].items()}
            names: dict[str, list[str]] = {part: list(values[part]) for part in LISTS}
            if not all(set(each) <= NAMES for each in names.values()):
                raise ValueError("other names than ours")
            if not all(variables.is_addresses(value) for held in env.values() for value in held.values()):
                raise ValueError("other values than addresses")
            return cls(str(values["digest"]), str(values["address"]), env, names)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            why = "cannot be read; take it out by hand, and with it what was injected"
            raise InjectionRefused((f"{STATUS}: {why}",)) from None

    def written(self) -> str:
        values = {"digest": self.digest, "address": self.address, "env": self.env, **self.names}
        return json.dumps(values, separators=(",", ":"), sort_keys=True)


def inject(pod: Pod, defaults: Defaults) -> InjectionResult:
    """Return a copy of *pod* with the sidecar that its annotations request, or without one if they request none.

    The result also has warnings. Containers, volumes and variables of an earlier injection are replaced or removed;
    a pod that is up to date is returned itself. *defaults* apply to annotations that the pod lacks.

    Raises: InjectionRefused: the request is invalid, or the pod does not permit it; with all reasons.
    """
    annotations = annotations_of(pod)
    bare = remove_injection(pod)
    if not is_on(annotations):
        return InjectionResult(bare, has_sidecar=False, warnings=tuple(_ignored_annotations(annotations)))
    check_pod(bare)
    reasons = [*validation.refusals_of_any(bare["spec"])]
    try:
        asked = injection_request(annotations, defaults)
    except InjectionRefused as refused:
        raise InjectionRefused((*refused.reasons, *reasons)) from None
    reasons += islice(validation.refusals_of_request(bare["spec"], asked), MOST_REASONS + 1)
    if reasons:
        raise InjectionRefused(tuple(reasons))
    fresh = _add_sidecar(bare, asked)
    is_current = annotations_of(fresh)[STATUS] == annotations_of(pod).get(STATUS) and _is_whole(pod)
    warnings = tuple(validation.warnings(bare["spec"], asked))
    return InjectionResult(pod if is_current else fresh, has_sidecar=True, warnings=warnings)


def remove_injection(pod: Pod) -> Pod:
    """Return a copy of *pod* without the changes that its annotation ``sidefetch.io/status`` records.

    These are the added containers and volumes, and the changed variables. A pod without that annotation is returned
    itself.

    Raises: InjectionRefused: *pod* is malformed, or injection did not write its status annotation.
    """
    annotations = annotations_of(pod)
    if STATUS not in annotations:
        return pod
    status = _Status.read(annotations[STATUS])
    spec = variables.restore_variables(check_pod(pod)["spec"], status.env, status.address)
    for part in (part for part in LISTS if status.names[part]):
        left = [each for each in spec.get(part) or () if each["name"] not in status.names[part]]
        spec = {**spec, part: left} if left else without_key(spec, part)
    kept = without_key(annotations, STATUS)
    metadata = {**pod["metadata"], "annotations": kept} if kept else without_key(pod["metadata"], "annotations")
    return {**pod, "metadata": metadata, "spec": spec}


def _add_sidecar(pod: Pod, asked: InjectionRequest) -> Pod:
    """Return *pod* with all additions for the request *asked*, and with the status annotation that records them.

    A native sidecar starts before the other init containers, so it comes first.
    """
    spec, was = variables.point_at_sidecar(pod["spec"], asked)
    step = [redirect(asked)] if asked.mode == "transparent" else []
    before = [*step, sidecar(asked)] if asked.is_native else []
    after = [] if asked.is_native else step
    added: dict[str, list[dict[str, Any]]] = {
        "initContainers": [*before, *after],
        "containers": [] if asked.is_native else [sidecar(asked)],
        "volumes": volumes(asked),
    }
    whole: dict[str, list[Any]] = {
        "initContainers": [*before, *(spec.get("initContainers") or ()), *after],
        "containers": [*added["containers"], *spec["containers"]],
        "volumes": [*(spec.get("volumes") or ()), *added["volumes"]],
    }
    names: dict[str, list[str]] = {part: [each["name"] for each in added[part]] for part in LISTS}
    status = _Status(_digest([added, was]), asked.address, was, names)
    annotations = {**annotations_of(pod), STATUS: status.written()}
    changed = {part: whole[part] for part in LISTS if added[part]}
    return {
        **pod,
        "metadata": {**pod["metadata"], "annotations": annotations},
        "spec": {**spec, **changed},
    }


def _is_whole(pod: Pod) -> bool:
    """Return whether the pod still has all containers and volumes that its status annotation names."""
    status = _Status.read(annotations_of(pod)[STATUS])
    return all(set(status.names[part]) <= named(pod["spec"], part) for part in LISTS)


def _ignored_annotations(annotations: Mapping[str, Any]) -> Iterator[str]:
    if INJECT not in annotations and any(str(each).startswith(PREFIX) for each in annotations):
        yield f'{INJECT} is not there, so nothing is injected; give it as "true"'


def _digest(of: object) -> str:
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:16]
