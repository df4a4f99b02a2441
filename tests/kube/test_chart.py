"""The chart against the program that it deploys, helm, and Kubernetes' own schemas."""

import json
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import jsonschema
import kubernetes_validate
import pytest

from proxy.cli.settings import load_settings
from proxy.config import OPTIONS, LimitsConfig
from proxy.kube.annotations import ANNOTATIONS, Defaults
from proxy.kube.sizes import limit_bytes, max_connections, request_memory_bytes
from proxy.version import VERSION
from tests.command_blocks import all_blocks
from tests.kube.charts import CHART, VALUES_FILES, helm, loaded, rendered

OF_OTHERS: Final = {"Certificate", "Issuer", "PodMonitor", "ServiceMonitor"}
"""Kinds of cert-manager and of the Prometheus operator: Kubernetes has no schema of them."""
SET_BY_THE_CHART: Final = {"bootstrap-servers", "memory", "rack", "transparent"}
SET_FOR_THE_GATEWAY: Final = {
    *("listen", "broker-ports", "advertise", "admin-listen", "grace"),
    *("listen-tls-cert", "listen-tls-key", "insecure-listen", "share-reads", "allowed-apis"),
}
GATEWAY: Final = (
    "--set=bootstrapServers=kafka-1:9092",
    "--set=gateway.enabled=true",
    "--set=gateway.tls.insecure=true",
)
SCHEMA: Final[dict[str, Any]] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
HELM_COMMANDS: Final = {line for block in all_blocks() for line in block.lines if line.startswith("helm install")}
"""The commands of all pages that install the chart."""
kubernetes = pytest.mark.kubernetes


def schema_of(*path: str) -> dict[str, Any]:
    schema = SCHEMA
    for part in path:
        schema = schema["properties"][part]
    return schema


def only(documents: list[dict[str, Any]], kind: str, name: str = "") -> dict[str, Any]:
    (found,) = (each for each in documents if each["kind"] == kind and name in each["metadata"]["name"])
    return found


def pods(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for each in documents:
        if each["kind"] == "Pod":
            yield each
        elif each["kind"] == "Deployment":
            yield each["spec"]["template"]


def test_chart_and_program_are_of_one_version() -> None:
    chart = loaded(CHART / "Chart.yaml")

    assert chart["version"] == chart["appVersion"] == VERSION


@pytest.mark.parametrize("file", [CHART / "values.yaml", *VALUES_FILES], ids=lambda file: file.stem)
def test_values_obey_their_schema(file: Path) -> None:
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(loaded(file), SCHEMA, cls=jsonschema.Draft7Validator)


def values_set_by(command: str) -> dict[str, Any]:
    """Return the chart's values with those that a helm command sets."""
    values: dict[str, Any] = loaded(CHART / "values.yaml")
    for flag, setting in pairwise(shlex.split(command)):
        if flag == "--set":
            path, _, text = setting.partition("=")
            *parents, name = path.split(".")
            place = values
            for parent in parents:
                place = place[parent]
            place[name] = {"true": True, "false": False}.get(text, text)
    return values


@pytest.mark.parametrize("command", sorted(HELM_COMMANDS))
def test_values_in_commands_of_the_pages_obey_the_schema(command: str) -> None:
    jsonschema.validate(values_set_by(command), SCHEMA, cls=jsonschema.Draft7Validator)


def test_the_schema_knows_every_value_and_no_other() -> None:
    def keys(values: dict[str, Any], schema: dict[str, Any]) -> None:
        if "properties" in schema and schema.get("additionalProperties") is False and values:
            if set(schema["properties"]) == {"matchLabels", "matchExpressions"}:
                return
            assert set(values) == set(schema["properties"]) - {"global"}
            for name, value in values.items():
                if isinstance(value, dict):
                    keys(value, schema["properties"][name])

    keys(loaded(CHART / "values.yaml"), SCHEMA)


def test_the_schema_names_the_programs_own_options_and_annotations() -> None:
    options = {option.name for option in OPTIONS}
    of_sidecars, of_gateway = (set(schema_of(who, "options")["properties"]) for who in ("injection", "gateway"))
    annotations = {each.name for each in ANNOTATIONS if not each.is_the_pods}

    assert of_sidecars == options - SET_BY_THE_CHART
    assert of_gateway == options - SET_BY_THE_CHART - SET_FOR_THE_GATEWAY
    assert set(schema_of("injection", "annotations")["properties"]) == annotations - {
        "bootstrap-servers",
        "image",
        "native",
    }


@kubernetes
@pytest.mark.parametrize("file", VALUES_FILES, ids=lambda file: file.stem)
def test_helm_finds_nothing_to_complain_of(file: Path) -> None:
    done = helm("lint", "--strict", str(CHART), "--values", str(file))

    assert done.returncode == 0, done.stdout + done.stderr


@kubernetes
@pytest.mark.parametrize("file", VALUES_FILES, ids=lambda file: file.stem)
def test_rendered_manifests_conform_to_the_kubernetes_schema(file: Path) -> None:
    documents = rendered("--values", str(file))
    newest = kubernetes_validate.latest_version()

    assert documents
    for document in documents:
        if document["kind"] not in OF_OTHERS:
            kubernetes_validate.validate(document, newest, strict=True)


@kubernetes
@pytest.mark.parametrize("file", VALUES_FILES, ids=lambda file: file.stem)
def test_every_pod_is_restricted_and_bounded_but_for_its_cpu(file: Path) -> None:
    for pod in pods(rendered("--values", str(file))):
        context = pod["spec"]["securityContext"]
        assert (context["runAsNonRoot"], context["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
        for container in pod["spec"]["containers"]:
            confined = container["securityContext"]
            assert confined["allowPrivilegeEscalation"] is False
            assert confined["readOnlyRootFilesystem"] is True
            assert confined["capabilities"] == {"drop": ["ALL"]}


@kubernetes
def test_the_gateway_has_no_cpu_limit_unless_it_is_given_one() -> None:
    def limits(*more: str) -> dict[str, str]:
        template = only(rendered(*GATEWAY, *more), "Deployment", "gateway")["spec"]["template"]
        found: dict[str, str] = template["spec"]["containers"][0]["resources"]["limits"]
        return found

    assert set(limits()) == {"memory"}
    assert limits("--set-string=gateway.cpuLimit=2")["cpu"] == "2"


@kubernetes
@pytest.mark.parametrize(("memory", "mib"), [("16MiB", 16), ("65MiB", 65), ("256MiB", 256), ("2GiB", 2048)])
def test_the_memory_limit_is_the_programs_formula(memory: str, mib: int) -> None:
    documents = rendered(*GATEWAY, f"--set=gateway.memory={memory}")
    container = only(documents, "Deployment", "gateway")["spec"]["template"]["spec"]["containers"][0]
    settings = only(documents, "ConfigMap", "gateway")["data"]
    memory_bytes = mib * 1024**2
    limits = LimitsConfig(
        request_memory_bytes=request_memory_bytes(memory_bytes), max_connections=max_connections(memory_bytes)
    )

    assert container["resources"]["limits"]["memory"] == f"{limit_bytes(memory_bytes, limits) // 1024**2}Mi"
    assert settings["SIDEFETCH_REQUEST_MEMORY"] == f"{limits.request_memory_bytes // 1024}KiB"
    assert settings["SIDEFETCH_MAX_CONNECTIONS"] == str(limits.max_connections)


@kubernetes
def test_the_memory_limit_follows_from_the_options_of_the_gateway() -> None:
    options = ("request-memory=1.5 GiB", "max-connections=10000")
    documents = rendered(*GATEWAY, *(f"--set-string=gateway.options.{each}" for each in options))
    container = only(documents, "Deployment", "gateway")["spec"]["template"]["spec"]["containers"][0]
    limits = LimitsConfig(request_memory_bytes=3 * 2**29, max_connections=10_000)

    assert container["resources"]["limits"]["memory"] == f"{limit_bytes(256 * 1024**2, limits) // 1024**2}Mi"


@kubernetes
@pytest.mark.parametrize("file", VALUES_FILES, ids=lambda file: file.stem)
def test_sidefetch_takes_the_settings_that_it_is_given(file: Path) -> None:
    for document in rendered("--values", str(file)):
        if document["kind"] != "ConfigMap":
            continue
        if "defaults.json" in document["data"]:
            Defaults.parse(document["data"]["defaults.json"], "defaults.json")
        else:
            expected = {name: text for name, text in document["data"].items() if name.startswith("SIDEFETCH_")}
            assert set(expected) <= {option.env for option in OPTIONS}
            load_settings(flags={}, environ=expected, toml="", toml_name="")


@kubernetes
@pytest.mark.parametrize(
    ("component", "change", "rolls"),
    [
        ("gateway", "gateway.options.upstream-max-wait=20s", True),
        ("gateway", "gateway.shareReads=client-id", True),
        ("gateway", "gateway.brokerPorts.count=20", True),
        ("gateway", "monitoring.enabled=true", False),
        ("webhook", "injection.options.upstream-max-wait=20s", True),
        ("webhook", "bootstrapServers=kafka-2:9092", True),
        ("webhook", "injection.timeoutSeconds=7", False),
    ],
)
def test_settings_that_change_roll_the_pods_that_read_them(component: str, change: str, rolls: bool) -> None:
    before, after = (
        only(rendered(*GATEWAY, *more), "Deployment", component)["spec"]["template"]
        for more in ((), (f"--set={change}",))
    )

    assert (before != after) is rolls


@kubernetes
def test_the_service_has_a_port_for_every_broker_port_that_pods_listen_on() -> None:
    documents = rendered(*GATEWAY, "--set=gateway.brokerPorts.first=9200", "--set=gateway.brokerPorts.count=3")
    (service,) = (
        each for each in documents if each["kind"] == "Service" and each["metadata"]["name"].endswith("-gateway")
    )

    assert [each["port"] for each in service["spec"]["ports"]] == [9092, 9200, 9201, 9202]
    assert only(documents, "ConfigMap", "gateway")["data"]["SIDEFETCH_BROKER_PORTS"] == "9200-9202"


@kubernetes
@pytest.mark.parametrize("mode", ["off", "client-id", "principal"])
def test_the_gateway_gets_the_mode_of_shared_reads_from_its_value(mode: str) -> None:
    default = only(rendered(*GATEWAY), "ConfigMap", "gateway")["data"]
    data = only(rendered(*GATEWAY, f"--set-string=gateway.shareReads={mode}"), "ConfigMap", "gateway")["data"]

    assert default["SIDEFETCH_SHARE_READS"] == loaded(CHART / "values.yaml")["gateway"]["shareReads"]
    assert data["SIDEFETCH_SHARE_READS"] == mode


@kubernetes
def test_the_webhook_may_touch_its_own_secret_and_configuration_and_nothing_else() -> None:
    documents = rendered()
    rules = [rule for kind in ("Role", "ClusterRole") for rule in only(documents, kind)["rules"]]
    configuration = only(documents, "MutatingWebhookConfiguration")["metadata"]["name"]
    arguments = only(documents, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"]

    assert [rule["resourceNames"] for rule in rules] == [["it-sidefetch-webhook-certificate"], [configuration]]
    assert f"--webhook-configuration={configuration}" in arguments
    assert "--secret=it-sidefetch-webhook-certificate" in arguments
    assert not any("*" in part for rule in rules for part in (*rule["verbs"], *rule["resources"]))


@kubernetes
def test_webhook_with_external_certificate_has_no_rbac_permissions() -> None:
    documents = rendered("--values", str(CHART / "ci" / "injection-cert-manager.yaml"))
    template = only(documents, "Deployment")["spec"]["template"]

    assert not any("Role" in each["kind"] for each in documents)
    assert template["spec"]["automountServiceAccountToken"] is False


@kubernetes
@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ("injection.replica=3", "additional properties 'replica' not allowed"),
        ("injection.memory=64", "at '/injection/memory': got number, want string"),
        ("injection.memory=8MiB", "at '/injection/memory'"),
        ("injection.failurePolicy=Maybe", "value must be one of 'Fail', 'Ignore'"),
        ("injection.options.patience=20s", "at '/injection/options': additional properties 'patience' not allowed"),
        ("injection.options.client-sessions=5", "at '/injection/options/client-sessions': got number, want string"),
        ("gateway.shareReads=all", "value must be one of 'off', 'client-id', 'principal'"),
        ("gateway.allowedApis=", "at '/gateway/allowedApis'"),
        ("injection.certificate.source=secret", "at '/injection/certificate/secretName'"),
        ("gateway.enabled=true", "gateway: bootstrapServers is empty"),
        ("gateway.enabled=true,bootstrapServers=k:9092", "accepted: secretName, or insecure: true"),
        (
            "gateway.enabled=true,bootstrapServers=k:9092,gateway.tls.insecure=true,gateway.port=9095",
            "among brokerPorts",
        ),
    ],
)
def test_wrong_values_are_refused_with_the_reason(wrong: str, expected: str) -> None:
    done = helm("template", "it", str(CHART), f"--set={wrong}")

    assert done.returncode != 0
    assert expected in done.stderr
