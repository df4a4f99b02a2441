"""Reasons why a pod cannot have the sidecar that it requests, each with a remedy."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from proxy.config import FILE, OPTIONS
from proxy.kube import variables
from proxy.kube.annotations import OPTION_PREFIX, PREFIX, InjectionRequest
from proxy.kube.containers import REDIRECT, SECRET_FOLDER, SIDECAR, UID, volumes
from proxy.kube.pods import each_container, mapping, mappings, named

__all__ = ["refusals_of_any", "refusals_of_request", "warnings"]

_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount/"
_PROBES: Final = ("startupProbe", "readinessProbe", "livenessProbe")
_USUAL_GRACE_S: Final = 30
"""The default grace period of pods."""


def refusals_of_any(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reasons why a pod with this *spec* cannot have a sidecar, independent of the requested settings.

    They are host networking, Windows, and containers with the names of the injected ones.
    """
    if spec.get("hostNetwork"):
        yield (
            "spec.hostNetwork: true: the sidecar's ports would be the node's, for all on it to use; take it away,"
            " or have the pod use a shared gateway"
        )
    if mapping(spec.get("os")).get("name") == "windows":
        yield "spec.os.name: windows: Sidefetch's image is for Linux; have the pod use a shared gateway"
    for name in sorted({SIDECAR, REDIRECT} & {each["name"] for each in each_container(spec)}):
        yield f"container {name}: there is one already that was not injected; give it another name, or take it away"


def refusals_of_request(spec: Mapping[str, Any], asked: InjectionRequest) -> Iterator[str]:
    """Yield the reasons why a pod with this *spec* cannot have the sidecar that it requests by *asked*.

    They are conflicts of volumes, ports and users with the pod's own, files that the sidecar would lack, variables
    that cannot be changed, and a restart policy with which the pod would never end.
    """
    yield from _volumes(spec, asked)
    yield from _ports(spec, asked)
    yield from _files(asked)
    yield from variables.problems(spec, asked)
    if asked.mode == "transparent":
        yield from (
            f"container {each['name']}: runs as user {UID}, as the sidecar does, so that its connections would pass"
            f" the redirection by; let it run as another user, or give {PREFIX}mode: address"
            for each in each_container(spec)
            if _user(spec, each) == UID
        )
    if not asked.is_native and spec.get("restartPolicy", "Always") != "Always":
        yield (
            f"spec.restartPolicy: {spec['restartPolicy']}: the pod would never end, since a sidecar that is not"
            f' native never does; give {PREFIX}native: "true"'
        )


def warnings(spec: Mapping[str, Any], asked: InjectionRequest) -> Iterator[str]:
    """Yield warnings about settings that may be mistakes, for a pod that gets the sidecar.

    They are an application that is not pointed at the sidecar, containers whose user is not known in transparent
    mode, and a grace period of the sidecar that is as long as the pod's.
    """
    if asked.mode == "address" and not asked.env:
        yield (
            f"nothing in the pod is pointed at the sidecar; have the application use {asked.address}, or name"
            f" variables by {PREFIX}env"
        )
    if asked.mode == "transparent":
        yield from (
            f"container {each['name']} does not say by runAsUser as whom it runs: should that be {UID}, its"
            " connections pass the redirection by"
            for each in each_container(spec)
            if _user(spec, each) is None
        )
    grace_s = spec.get("terminationGracePeriodSeconds", _USUAL_GRACE_S)
    if not asked.is_native and isinstance(grace_s, int) and asked.config.grace_s >= grace_s:
        yield (
            f"the pod is ended {grace_s:g} s after SIGTERM, and the sidecar serves on for {asked.config.grace_s:g}"
            f" s; give it less by {OPTION_PREFIX}grace"
        )


def _volumes(spec: Mapping[str, Any], asked: InjectionRequest) -> Iterator[str]:
    for name in sorted(named(spec, "volumes") & {each["name"] for each in volumes(asked)}):
        yield f"volume {name}: there is one already that was not injected; give it another name, or take it away"


def _ports(spec: Mapping[str, Any], asked: InjectionRequest) -> Iterator[str]:
    down, admin = asked.config.downstream, asked.config.admin.listen
    assert admin is not None
    if not admin.is_wildcard:
        yield (
            f"{OPTION_PREFIX}admin-listen: {admin}: a kubelet's probes come from outside of the pod; accepted:"
            " 0.0.0.0:PORT"
        )
    listen = [address.port for address in down.listen]
    for each in each_container(spec):
        for port in sorted(_ports_of(each)):
            if port in down.broker_ports:
                remedy = f"give {OPTION_PREFIX}broker-ports another range than {down.broker_ports}"
            elif port in listen:
                remedy = f"give {OPTION_PREFIX}listen an address with another port"
            elif port == admin.port:
                remedy = f"give {OPTION_PREFIX}admin-listen an address with another port"
            elif port in [address.port for address in down.transparent]:
                remedy = f"let the application use another, or give {PREFIX}mode: address"
            else:
                continue
            yield f"container {each['name']}: port {port} is one that the sidecar listens on; {remedy}"


def _ports_of(container: Mapping[str, Any]) -> set[int]:
    """Return the TCP ports that a container declares, and those of its probes."""
    said = [
        each.get("containerPort")
        for each in mappings(container.get("ports"))
        if each.get("protocol", "TCP") == "TCP"
    ]
    probes = [mapping(container.get(name)) for name in _PROBES]
    asked = [mapping(probe.get(kind)).get("port") for probe in probes for kind in ("httpGet", "tcpSocket", "grpc")]
    return {port for port in said + asked if isinstance(port, int)}


def _files(asked: InjectionRequest) -> Iterator[str]:
    for option in OPTIONS:
        path = asked.settings.get(option.name)
        if option.kind is not FILE or path is None or path.startswith(_ACCOUNT):
            continue
        if asked.secret is None or not path.startswith(f"{SECRET_FOLDER}/"):
            yield (
                f"{OPTION_PREFIX}{option.name}: {path} is not in the sidecar; put it into a Secret, name that by"
                f" {PREFIX}secret, and the file as {SECRET_FOLDER}/KEY"
            )
    folder = asked.config.ledger.folder
    if folder is not None and (not folder.startswith("/") or folder.strip("/") in ("", "etc", "tmp")):
        yield f"{OPTION_PREFIX}ledger: {folder} cannot be a volume's; accepted: a folder as /var/lib/sidefetch"


def _user(spec: Mapping[str, Any], container: Mapping[str, Any]) -> object:
    """Return the user id that a container runs as, by its own or the pod's securityContext; None if not given."""
    own = mapping(container.get("securityContext")).get("runAsUser")
    return own if own is not None else mapping(spec.get("securityContext")).get("runAsUser")
