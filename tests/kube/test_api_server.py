"""Injection by a real API server of Kubernetes, which asks the webhook over TLS."""

import base64
import io
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from cryptography import x509

from proxy.config import Address
from proxy.kube.annotations import Defaults
from proxy.kube.inject import inject
from proxy.kube.webhook import SelfSigned, WebhookConfig, serve
from proxy.net.io.logs import Log
from tests.certificates import Authority
from tests.kube.api_server import ApiServer, Refusal, running
from tests.kube.charts import rendered
from tests.kube.pods import DEFAULTS, pod
from tests.ports import free_ports
from tests.processes import Process

pytestmark = pytest.mark.kubernetes

HOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running(tmp_path_factory.mktemp("cluster")) as server:
        yield server


def configuration(name: str, url: str, authorities: bytes, policy: str, namespace: str) -> dict[str, Any]:
    """Return the chart's configuration for one namespace, with an address instead of a service."""
    return {
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": "inject.sidefetch.io",
                "clientConfig": {"url": url, "caBundle": base64.b64encode(authorities).decode()},
                "rules": [
                    {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
                ],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "failurePolicy": policy,
                "reinvocationPolicy": "IfNeeded",
                "sideEffects": "None",
                "timeoutSeconds": 2,
                "admissionReviewVersions": ["v1"],
            }
        ],
    }


@contextmanager
def registered(api: ApiServer, webhook: dict[str, Any]) -> Iterator[None]:
    api.ask("POST", HOOKS, webhook)
    try:
        yield
    finally:
        api.ask("DELETE", f"{HOOKS}/{webhook['metadata']['name']}")


@contextmanager
def served(folder: Path, port: int) -> Iterator[Process]:
    """``sidefetch webhook`` with a certificate from *folder*."""
    defaults = folder / "defaults.json"
    defaults.write_text(json.dumps(dict(DEFAULTS.annotations)))
    command = [
        "-m",
        "proxy",
        "webhook",
        "--certificate-dir",
        str(folder),
        "--defaults",
        str(defaults),
        "--grace",
        "0s",
    ]
    with Process(
        [sys.executable, *command, "--listen", f"127.0.0.1:{port}"], log=folder / "webhook.log"
    ) as process:
        deadline = time.monotonic() + 20
        while "listening" not in process.log_text():
            assert process.exit_code is None, process.log_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield process
        assert process.stop() == 0


@pytest.fixture(scope="module")
def injecting(api: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A namespace for whose pods the webhook is asked."""
    folder = tmp_path_factory.mktemp("webhook")
    authority = Authority(folder)
    authority.issue("127.0.0.1", file="tls")
    (port,) = free_ports(1)
    api.create_namespace("injecting")
    url = f"https://127.0.0.1:{port}/inject"
    hook = configuration("injecting", url, authority.path.read_bytes(), "Fail", "injecting")
    with served(folder, port), registered(api, hook):
        until(lambda: has_sidecar(api, "injecting"))
        yield "injecting"


def until(is_so: Any, timeout_s: float = 20) -> None:
    """The API server looks for changes of its configurations by itself."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def named(name: str, **annotations: Any) -> dict[str, Any]:
    made = pod(**annotations)
    made["metadata"]["name"] = name
    return made


def has_sidecar(api: ApiServer, namespace: str) -> bool:
    """Return whether a pod of a dry run has a sidecar."""
    made, _ = api.create_pod(named("for-show"), namespace, dry_run=True)
    return bool(made["spec"]["initContainers"][0]["name"] == "sidefetch")


def has_sidecar_or_reason(api: ApiServer, namespace: str) -> bool | str:
    try:
        return has_sidecar(api, namespace)
    except Refusal as refused:
        return str(refused)


def includes(whole: Any, part: Any) -> bool:
    """Whether *part* is in *whole*, which may have more: the API server fills in defaults, and adds a token."""
    if isinstance(part, dict):
        return all(key in whole and includes(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        names = [each.get("name") if isinstance(each, dict) else None for each in part]
        ours = whole if None in names else [each for each in whole if each["name"] in names]
        return len(ours) == len(part) and all(map(includes, ours, part))
    return bool(whole == part)


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {"native": "false"},
        {"mode": "transparent"},
        {"secret": "kafka", "rack": "a", "option_ledger": "/var/lib/sidefetch"},
    ],
    ids=["native", "other", "transparent", "volumes"],
)
def test_pods_come_back_injected(
    api: ApiServer, injecting: str, annotations: dict[str, str], request: pytest.FixtureRequest
) -> None:
    before = named(request.node.callspec.id, **annotations)

    made, _ = api.create_pod(before, injecting)

    expected = inject(before, DEFAULTS).pod
    assert includes(made["spec"], expected["spec"])
    assert includes(made["metadata"]["annotations"], expected["metadata"]["annotations"])
    assert api.ask("GET", f"/api/v1/namespaces/{injecting}/pods/{before['metadata']['name']}") == made


def test_pod_with_inject_false_is_created_unchanged(api: ApiServer, injecting: str) -> None:
    made, warnings = api.create_pod(named("plain", inject="false"), injecting)

    assert [each["name"] for each in made["spec"]["initContainers"]] == ["migrate"]
    assert warnings == []


def test_sidecar_mounts_the_service_account_token(api: ApiServer, injecting: str) -> None:
    made, _ = api.create_pod(named("token"), injecting)

    mounts = [each["mountPath"] for each in made["spec"]["initContainers"][0]["volumeMounts"]]
    assert "/var/run/secrets/kubernetes.io/serviceaccount" in mounts


def test_pods_that_are_injected_already_are_left_alone(api: ApiServer, injecting: str) -> None:
    made, _ = api.create_pod(named("first"), injecting)
    again = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "second", "annotations": made["metadata"]["annotations"]},
        "spec": made["spec"],
    }

    second, _ = api.create_pod(again, injecting)

    assert second["spec"] == made["spec"]


def test_annotations_that_are_wrong_are_refused_with_the_reason(api: ApiServer, injecting: str) -> None:
    with pytest.raises(Refusal) as refused:
        api.create_pod(named("wrong", mode="magic", option_memry="1MiB"), injecting)

    said = str(refused.value)
    assert said.startswith('admission webhook "inject.sidefetch.io" denied the request: Sidefetch: ')
    assert "sidefetch.io/mode: 'magic'; accepted: address or transparent" in said
    assert "did you mean option.sidefetch.io/memory?" in said
    assert refused.value.code == 422


def test_warnings_reach_whoever_makes_the_pod(api: ApiServer, injecting: str) -> None:
    _, warnings = api.create_pod(named("warned", mode="transparent"), injecting, dry_run=True)

    assert len(warnings) == 3
    assert all("does not say by runAsUser" in each for each in warnings)


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
def test_without_a_webhook_pods_are_made_as_the_failure_policy_says(api: ApiServer, policy: str) -> None:
    (port,) = free_ports(1)
    namespace = f"down-{policy.lower()}"
    api.create_namespace(namespace)
    hook = configuration(namespace, f"https://127.0.0.1:{port}/inject", b"", policy, namespace)

    def is_known() -> bool:
        has_sidecar_or_reason(api, namespace)
        return f"127.0.0.1:{port}/inject" in (api.folder / "api-server.log").read_text()

    with registered(api, hook):
        until(is_known)
        reported = has_sidecar_or_reason(api, namespace)

    if policy == "Fail":
        assert isinstance(reported, str)
        assert "failed calling webhook" in reported
    else:
        assert reported is False


def restricted(name: str) -> dict[str, Any]:
    made = named(name)
    for part in ("initContainers", "containers"):
        for each in made["spec"][part]:
            each["securityContext"] = RESTRICTED
    return made


def test_pod_security_takes_our_sidecar_for_restricted_and_no_broken_one(api: ApiServer) -> None:
    api.create_namespace("restricted", {"pod-security.kubernetes.io/enforce": "restricted"})
    good: Any = inject(restricted("good"), DEFAULTS).pod

    def is_enforced() -> bool:
        try:
            api.create_pod(named("for-show"), "restricted", dry_run=True)
        except Refusal:
            return True
        return False

    until(is_enforced)
    api.create_pod(good, "restricted")
    for broken in ({"runAsUser": 0}, {"capabilities": {"add": ["NET_ADMIN"]}}, {"allowPrivilegeEscalation": True}):
        sidecar = good["spec"]["initContainers"][0]
        context = {**sidecar["securityContext"], **broken}
        containers = [{**sidecar, "securityContext": context}, *good["spec"]["initContainers"][1:]]
        bad = {**good, "metadata": {"name": "bad"}, "spec": {**good["spec"], "initContainers": containers}}
        with pytest.raises(Refusal, match="restricted"):
            api.create_pod(bad, "restricted")


CHART = {
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ConfigMap": "/api/v1/namespaces/place/configmaps",
    "MutatingWebhookConfiguration": HOOKS,
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/place/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/place/rolebindings",
    "Secret": "/api/v1/namespaces/place/secrets",
    "ServiceAccount": "/api/v1/namespaces/place/serviceaccounts",
}
"""The collections of the chart's objects, as far as a webhook outside the cluster needs them."""


@pytest.fixture(scope="module")
def installed(api: ApiServer) -> dict[str, Any]:
    """Install the chart with an address instead of its Service; return its objects by kind, Secrets last."""
    (port,) = free_ports(1)
    api.create_namespace("place")
    made: dict[str, Any] = {"port": port}
    for each in rendered(
        "--set=bootstrapServers=kafka-1:9092", "--set=injection.env.OTEL_TRACES_SAMPLER=always_on"
    ):
        if each["kind"] in CHART and "helm.sh/hook" not in each["metadata"].get("annotations", {}):
            for webhook in each.get("webhooks", ()):
                webhook["clientConfig"] = {"url": f"https://127.0.0.1:{port}/inject"}
            made[each["kind"]] = api.ask("POST", CHART[each["kind"]], each)
    return made


@asynccontextmanager
async def self_signed(
    api: ApiServer, chart: dict[str, Any], life_s: float, *, replicas: int = 1
) -> AsyncIterator[io.StringIO]:
    """*replicas* of the chart's webhook, with its rights, the first of which the API server asks; what they log."""
    names = {kind: each["metadata"]["name"] for kind, each in chart.items() if kind in CHART}
    account = await trio.to_thread.run_sync(api.as_pod, "place", names["ServiceAccount"])
    defaults = Defaults.parse(chart["ConfigMap"]["data"]["defaults.json"], "defaults.json")
    certificate = SelfSigned(account, names["Secret"], names["MutatingWebhookConfiguration"], life_s)
    reported = io.StringIO()
    async with trio.open_nursery() as nursery:
        for port in [chart["port"], *free_ports(replicas)[1:]]:
            config = WebhookConfig(Address("127.0.0.1", port), defaults, certificate, 0)
            nursery.start_soon(partial(serve, config, Log("text", "debug", reported)))
        yield reported
        nursery.cancel_scope.cancel()


async def test_own_certificates_are_trusted_and_renewed_unnoticed_with_the_charts_rights(
    api: ApiServer, installed: dict[str, Any]
) -> None:
    ask = partial(trio.to_thread.run_sync, abandon_on_cancel=True)
    hook = f"{HOOKS}/{installed['MutatingWebhookConfiguration']['metadata']['name']}"

    def authorities() -> int:
        (webhook,) = api.ask("GET", hook)["webhooks"]
        return len(x509.load_pem_x509_certificates(base64.b64decode(webhook["clientConfig"]["caBundle"])))

    async with self_signed(api, installed, life_s=3, replicas=2) as reported:
        with trio.fail_after(60):
            while await ask(has_sidecar_or_reason, api, "default") is not True:
                await trio.sleep(0.1)
            while reported.getvalue().count("certificate-created") < 3:
                # For a new authority the API server makes new connections.
                assert await ask(has_sidecar, api, "default")
                await trio.sleep(0.02)
            assert await ask(has_sidecar, api, "default")
            assert await ask(authorities) >= 2

    assert "warning" not in reported.getvalue()


async def test_chart_webhook_is_called_only_for_pods_that_request_a_sidecar(
    api: ApiServer, installed: dict[str, Any]
) -> None:
    def made(name: str, **annotations: str) -> dict[str, Any]:
        return api.create_pod(named(name, **annotations))[0]

    ask = partial(trio.to_thread.run_sync, abandon_on_cancel=True)
    async with self_signed(api, installed, life_s=3600):
        with trio.fail_after(60):
            while await ask(has_sidecar_or_reason, api, "default") is not True:
                await trio.sleep(0.1)
        sidecar = (await ask(partial(made, "with-chart")))["spec"]["initContainers"][0]
        with pytest.raises(Refusal, match="'magic'"):
            await ask(partial(made, "wrong-with-chart", mode="magic"))

    assert sidecar["image"].startswith("sidefetch:")
    assert {"name": "SIDEFETCH_MEMORY", "value": "64MiB"} in sidecar["env"]
    assert {"name": "OTEL_TRACES_SAMPLER", "value": "always_on"} in sidecar["env"]
    assert len((await ask(partial(made, "not-asking", inject="false")))["spec"]["initContainers"]) == 1
    with pytest.raises(Refusal, match="failed calling webhook"):
        await ask(partial(made, "asking"))
