"""The chart, installed by helm in a real API server: required rights, granted rights, and dependencies."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any, Final

import pytest

from proxy.kube.api import Api, ApiFailed
from proxy.kube.rotation import Rotation
from proxy.net.io.logs import Log
from tests.kube.api_server import ApiServer, Refusal, running
from tests.kube.charts import CHART, documents_of, helm

pytestmark = pytest.mark.kubernetes

NAMESPACE: Final = "place"
WEBHOOK: Final = "it-sidefetch-webhook"
SECRET: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets/{WEBHOOK}-certificate"
DEFAULTS: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{WEBHOOK}"
DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{WEBHOOK}"
HOOK: Final = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{WEBHOOK}-{NAMESPACE}"
VALUES: Final = (
    *("--set=bootstrapServers=kafka-1:9092", "--set=rack.fromNodes=true"),
    *("--set=gateway.enabled=true", "--set=gateway.tls.insecure=true", "--set=gateway.autoscaling.enabled=true"),
)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with running(tmp_path_factory.mktemp("cluster")) as server:
        server.create_namespace(NAMESPACE, {"pod-security.kubernetes.io/enforce": "restricted"})
        ran(server, "install", "it", str(CHART), *VALUES)
        yield server


def ran(api: ApiServer, *command: str) -> str:
    """Return the output of helm, in that cluster."""
    where = ("--kube-apiserver", f"https://127.0.0.1:{api.port}", "--kube-ca-file", str(api.authority))
    done = helm(*command, "--namespace", NAMESPACE, *where, "--kube-token", api.token)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rotation(api: Api) -> Rotation:
    log = Log("text", "info", StringIO())
    return Rotation(
        api, f"{WEBHOOK}-certificate", f"{WEBHOOK}-{NAMESPACE}", timedelta(days=90), lambda: datetime.now(UTC), log
    )


@pytest.fixture(scope="module")
def webhook(api: ApiServer) -> Api:
    """The API as the webhook's pods may ask it."""
    return api.as_pod(NAMESPACE, WEBHOOK)


def pod(name: str, **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "annotations": {f"sidefetch.io/{key}": text for key, text in annotations.items()},
        },
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    }


@pytest.mark.parametrize("deployment", ["webhook", "gateway"])
def test_pods_of_the_chart_are_restricted_to_the_api_servers_own_judgement(api: ApiServer, deployment: str) -> None:
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/it-sidefetch-{deployment}"
    template = api.ask("GET", path)["spec"]["template"]
    template["metadata"]["name"] = deployment

    made, warnings = api.create_pod(template, NAMESPACE)

    assert made["metadata"]["name"] == deployment
    assert warnings == []
    del template["spec"]["securityContext"]["runAsNonRoot"]
    template["metadata"]["name"] = "broken"
    with pytest.raises(Refusal, match='violates PodSecurity "restricted'):
        api.create_pod(template, NAMESPACE)


def test_pods_that_request_no_sidecar_do_not_depend_on_the_webhook(api: ApiServer) -> None:
    """There is none: nothing runs in this cluster."""
    for made in (pod("asks-nothing"), pod("says-no", inject="false"), pod("says-something-else", rack="a")):
        api.create_pod(made)
    with pytest.raises(Refusal, match=r'failed calling webhook "inject\.sidefetch\.io"'):
        api.create_pod(pod("asks", inject="true"))
    with pytest.raises(Refusal, match=r'failed calling webhook "inject\.sidefetch\.io"'):
        api.create_pod(pod("asks-for-what-is-refused", inject="perhaps"))


async def test_the_webhook_can_make_its_certificate_by_the_rights_that_it_has(api: ApiServer, webhook: Api) -> None:
    await rotation(webhook).check()

    assert set(api.ask("GET", SECRET)["data"]) >= {"tls.crt", "tls.key"}
    assert api.ask("GET", HOOK)["webhooks"][0]["clientConfig"]["caBundle"]


@pytest.mark.parametrize(
    "path",
    [
        f"/api/v1/namespaces/{NAMESPACE}/secrets",
        f"/api/v1/namespaces/{NAMESPACE}/secrets/another",
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/another",
        "/api/v1/nodes/a-node",
    ],
)
async def test_webhook_is_forbidden_to_read_other_resources(webhook: Api, path: str) -> None:
    with pytest.raises(ApiFailed, match="403"):
        await webhook.get(path)


async def test_gateway_is_allowed_to_read_nodes_but_not_secrets(api: ApiServer) -> None:
    gateway = api.as_pod(NAMESPACE, "it-sidefetch-gateway")

    with pytest.raises(ApiFailed, match="404"):
        await gateway.get("/api/v1/nodes/a-node")
    with pytest.raises(ApiFailed, match="403"):
        await gateway.get(SECRET)


async def test_upgrade_and_rollback_change_settings_and_pods_and_keep_the_certificate(
    api: ApiServer, webhook: Api
) -> None:
    await rotation(webhook).check()

    def state() -> tuple[Any, ...]:
        template = api.ask("GET", DEPLOYMENT)["spec"]["template"]
        return (
            api.ask("GET", DEFAULTS)["data"],
            template["metadata"]["annotations"]["checksum/defaults"],
            template["spec"]["containers"][0]["image"],
        )

    def certificate() -> tuple[Any, ...]:
        return api.ask("GET", SECRET)["data"], api.ask("GET", HOOK)["webhooks"][0]["clientConfig"]["caBundle"]

    first, kept = state(), certificate()
    ran(
        api,
        "upgrade",
        "it",
        str(CHART),
        *VALUES,
        "--set=injection.options.upstream-max-wait=20s",
        "--set=image.tag=0.2.0",
    )
    upgraded, still = state(), certificate()
    ran(api, "rollback", "it", "1")

    assert all(before != after for before, after in zip(first, upgraded, strict=True))
    assert state() == first
    assert kept == still == certificate()


def test_its_tests_are_pods_that_the_namespace_takes(api: ApiServer) -> None:
    hooks = documents_of(ran(api, "get", "hooks", "it"))

    assert len(hooks) == 2
    for each in hooks:
        del each["metadata"]["annotations"]  # an object that asks for a sidecar cannot be created without a webhook
        api.create_pod(each, NAMESPACE, dry_run=True)
