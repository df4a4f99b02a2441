"""The decision on an AdmissionReview (v1), the API server's request about a pod that is to be created."""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final, Literal

import attrs

from proxy.kube.annotations import Defaults
from proxy.kube.errors import InjectionRefused
from proxy.kube.inject import inject
from proxy.kube.patch import difference
from proxy.kube.pods import mapping

__all__ = ["OUTCOMES", "Outcome", "Verdict", "verdict_on"]

Outcome = Literal["injected", "removed", "skipped", "refused"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("injected", "removed", "skipped", "refused")

_VERSION: Final = "admission.k8s.io/v1"
_POD: Final = {"group": "", "version": "v1", "kind": "Pod"}
_UNPROCESSABLE: Final = 422
_MOST_WARNING_CHARS: Final = 256
"""The API server truncates longer warnings."""


@attrs.frozen
class Verdict:
    """The decision on an AdmissionReview: its outcome for the pod, the reasons, and the response."""

    outcome: Outcome
    pod: str
    """``namespace/name``, as far as the pod has a name yet."""
    reasons: tuple[str, ...]
    """The reasons of a refusal; empty otherwise."""
    is_dry_run: bool
    """Whether the request is a dry run, so that no pod is created."""
    review: Mapping[str, Any]
    """The AdmissionReview with the response, to be sent to the API server."""


def verdict_on(body: bytes, defaults: Defaults) -> Verdict:
    """Decide on the AdmissionReview in the HTTP *body*: inject the sidecar, remove it, skip the object, or refuse.

    The response permits everything but a pod whose request cannot be met, and has a JSON Patch if the pod changes.
    Objects other than new pods are skipped. There are no side effects, so a dry run is like any other request.

    Raises: ValueError: *body* is no AdmissionReview of v1.
    """
    try:
        review: Any = json.loads(body)
        request = review["request"]
        uid, is_pod = request["uid"], request["kind"] == _POD
        if (review["apiVersion"], review["kind"]) != (_VERSION, "AdmissionReview") or not isinstance(uid, str):
            raise ValueError("another version")
    except (ValueError, LookupError, TypeError, RecursionError):
        raise ValueError(f"no AdmissionReview of {_VERSION}") from None
    is_new = is_pod and request.get("operation") == "CREATE" and not request.get("subResource")
    pod = request.get("object")
    if not is_new or not isinstance(pod, Mapping):
        return _verdict("skipped", request, {"allowed": True})
    try:
        answer = inject(pod, defaults)
    except InjectionRefused as refused:
        status = {"code": _UNPROCESSABLE, "reason": "Invalid", "message": f"Sidefetch: {refused}"}
        return _verdict("refused", request, {"allowed": False, "status": status}, refused.reasons)
    response: dict[str, Any] = {"allowed": True}
    operations = [each.as_json() for each in difference(pod, answer.pod)]
    if operations:
        patch = base64.b64encode(json.dumps(operations).encode()).decode()
        response |= {"patchType": "JSONPatch", "patch": patch}
    if answer.warnings:
        response["warnings"] = [f"Sidefetch: {each}"[:_MOST_WARNING_CHARS] for each in answer.warnings]
    outcome: Outcome = "skipped"  # a pod that the API server asks about again has its sidecar
    if operations:
        outcome = "injected" if answer.has_sidecar else "removed"
    return _verdict(outcome, request, response)


def _verdict(
    outcome: Outcome, request: Mapping[str, Any], response: Mapping[str, Any], reasons: tuple[str, ...] = ()
) -> Verdict:
    named = mapping(mapping(request.get("object")).get("metadata"))
    name = request.get("name") or named.get("name") or named.get("generateName") or ""
    review = {
        "apiVersion": _VERSION,
        "kind": "AdmissionReview",
        "response": {"uid": request["uid"], **response},
    }
    where = f"{request.get('namespace', '')}/{name}"
    return Verdict(outcome, where, reasons, bool(request.get("dryRun")), review)
