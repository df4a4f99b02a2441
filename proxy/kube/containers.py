"""The containers and volumes that injection adds to a pod, as the JSON objects of Kubernetes."""

from typing import Any, Final

from proxy.config import OPTIONS
from proxy.config.rack import ZONE_LABEL
from proxy.kube.annotations import InjectionRequest
from proxy.kube.sizes import MEMORY_REQUEST, limit_bytes

__all__ = ["NAMES", "REDIRECT", "SECRET_FOLDER", "SIDECAR", "UID", "redirect", "sidecar", "volumes"]

SIDECAR: Final = "sidefetch"
REDIRECT: Final = "sidefetch-redirect"
UID: Final = 65532
"""The user id of the image; by it, the packet filter leaves the sidecar's own connections alone."""
SECRET_FOLDER: Final = "/etc/sidefetch/secret"  # noqa: S105
_SECRET_VOLUME: Final = "sidefetch-secret"  # noqa: S105
_LEDGER_VOLUME: Final = "sidefetch-ledger"
NAMES: Final = frozenset({SIDECAR, REDIRECT, _SECRET_VOLUME, _LEDGER_VOLUME})
"""The names of all containers and volumes that injection may add."""
_CONFINED: Final = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True}
_OF_THE_POD: Final = {
    "POD_NAME": "metadata.name",
    "POD_NAMESPACE": "metadata.namespace",
    "HOST_IP": "status.hostIP",
}
"""Pod fields for OpenTelemetry's variables: a Collector on the node is at $(HOST_IP)."""
_ATTRIBUTES: Final = "k8s.namespace.name=$(POD_NAMESPACE),k8s.pod.name=$(POD_NAME),k8s.node.name=$(NODE_NAME)"
_PROFILE: Final = {"seccompProfile": {"type": "RuntimeDefault"}}


def sidecar(asked: InjectionRequest) -> dict[str, Any]:
    """Return the sidecar: the container that runs ``sidefetch run`` with the settings of the request *asked*.

    It has probes, resources, and the security context of PodSecurity's level *restricted*; ``deploy/README.md``
    describes it. A native sidecar (``restartPolicy: Always``) belongs to the pod's init containers.
    """
    admin = asked.config.admin.listen
    assert admin is not None
    container: dict[str, Any] = {
        "name": SIDECAR,
        "image": asked.image,
        "args": ["run"],
        "env": _environment(asked),
        "ports": [{"name": "sidefetch-admin", "containerPort": admin.port}],
        "startupProbe": _probe("/startupz", admin.port, periodSeconds=1, failureThreshold=30),
        "readinessProbe": _probe("/readyz", admin.port),
        "livenessProbe": _probe("/livez", admin.port, timeoutSeconds=5),
        "resources": _resources(asked),
        "securityContext": {
            **_CONFINED,
            "runAsUser": UID,
            "runAsGroup": UID,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            **_PROFILE,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    mounts = _mounts(asked)
    if mounts:
        container["volumeMounts"] = mounts
    if asked.is_native:
        container["restartPolicy"] = "Always"
    return container


def redirect(asked: InjectionRequest) -> dict[str, Any]:
    """Return the init container that installs the rules for transparent mode, and then ends.

    By these rules the packet filter redirects the pod's connections to the ports and networks of the request
    *asked* to the sidecar. Only this container has the capability NET_ADMIN.
    """
    networks = ["--networks", asked.redirect_networks] if asked.redirect_networks else []
    return {
        "name": REDIRECT,
        "image": asked.image,
        "args": ["redirect", "install", "--ports", asked.redirect_ports, *networks],
        "resources": {
            "limits": {"memory": MEMORY_REQUEST},
            "requests": {"cpu": asked.cpu_request, "memory": MEMORY_REQUEST},
        },
        "securityContext": {
            **_CONFINED,
            "runAsUser": 0,
            "runAsGroup": 0,
            "runAsNonRoot": False,
            "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
            **_PROFILE,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def volumes(asked: InjectionRequest) -> list[dict[str, Any]]:
    """Return the volumes of the sidecar: the Secret that *asked* names, if any, and an emptyDir for ledger files.

    The latter is only for a sidecar that writes a ledger, since its root file system is read-only.
    """
    made: list[dict[str, Any]] = []
    if asked.secret is not None:
        made.append({"name": _SECRET_VOLUME, "secret": {"secretName": asked.secret}})
    ledger = asked.config.ledger
    if ledger.folder is not None:
        # One file more than the ledger holds: the kubelet checks only now and then, and must not evict the pod.
        mib = -(-(ledger.max_bytes + ledger.file_bytes) // 1024**2)
        made.append({"name": _LEDGER_VOLUME, "emptyDir": {"sizeLimit": f"{mib}Mi"}})
    return made


def _mounts(asked: InjectionRequest) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    if asked.secret is not None:
        made.append({"name": _SECRET_VOLUME, "mountPath": SECRET_FOLDER, "readOnly": True})
    if asked.config.ledger.folder is not None:
        made.append({"name": _LEDGER_VOLUME, "mountPath": asked.config.ledger.folder})
    return made


def _environment(asked: InjectionRequest) -> list[dict[str, Any]]:
    given: list[dict[str, Any]] = [
        {"name": option.env, "value": asked.settings[option.name]}
        for option in OPTIONS
        if option.name in asked.settings
    ]
    if "rack" not in asked.settings:
        # Pods have the zone label from Kubernetes 1.35 on; before, the field is empty and the sidecar reads the
        # node.
        given.append(_from_field("TOPOLOGY_ZONE", f"metadata.labels['{ZONE_LABEL}']"))
    if asked.otel:
        given += [_from_field(name, path) for name, path in _OF_THE_POD.items()]
    if asked.otel or "rack" not in asked.settings:
        given.append(_from_field("NODE_NAME", "spec.nodeName"))
    if asked.otel:
        variables = {"OTEL_RESOURCE_ATTRIBUTES": _ATTRIBUTES, **asked.otel}
        given += [{"name": name, "value": text} for name, text in variables.items()]
    return given


def _from_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _probe(path: str, port: int, **more: int) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": port}, **more}


def _resources(asked: InjectionRequest) -> dict[str, Any]:
    """Return the memory limit and the requests; there is no CPU limit (see ``sizes``)."""
    if asked.memory is not None:
        limit = request = asked.memory
    else:
        mib = limit_bytes(asked.config.upstream.memory_bytes, asked.config.limits) // 1024**2
        limit, request = f"{mib}Mi", MEMORY_REQUEST
    return {"limits": {"memory": limit}, "requests": {"cpu": asked.cpu_request, "memory": request}}
