"""The changes that injection makes to a pod, and their removal."""

import json
import re
from contextlib import suppress
from copy import deepcopy
from datetime import date
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cli import main
from proxy.cli.settings import load_settings
from proxy.config import OPTIONS, Option
from proxy.kube.annotations import STATUS, Defaults, injection_request
from proxy.kube.errors import InjectionRefused
from proxy.kube.inject import inject, remove_injection
from proxy.kube.redirect import LISTEN_PORT
from tests.kube.pods import DEFAULTS, pod

WITH_ALL: dict[str, str] = {
    "mode": "transparent",
    "rack": "eu-1a",
    "secret": "kafka",
    "redirect_networks": "10.0.0.0/8,fd00::/8",
    "option_upstream_tls": "on",
    "option_upstream_tls_ca": "/etc/sidefetch/secret/ca.crt",
    "option_ledger": "/var/lib/sidefetch",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://$(HOST_IP):4318",
}


def done(before: dict[str, Any], defaults: Defaults = DEFAULTS) -> Any:
    untouched = deepcopy(before)
    after = inject(before, defaults).pod
    assert before == untouched
    return after


def environ(container: dict[str, Any]) -> dict[str, str | None]:
    return {each["name"]: each.get("value") for each in container["env"]}


def names(things: list[dict[str, Any]]) -> list[str]:
    return [each["name"] for each in things]


def test_a_native_sidecar_comes_before_all_init_containers() -> None:
    after = done(pod())

    first, second = after["spec"]["initContainers"]
    assert (first["name"], first["restartPolicy"], second["name"]) == ("sidefetch", "Always", "migrate")
    assert first["args"] == ["run"]
    assert environ(first)["SIDEFETCH_BOOTSTRAP_SERVERS"] == "kafka-1:9092,kafka-2:9092"


def test_one_that_is_not_native_comes_first_among_the_containers() -> None:
    after = done(pod(native="false"))

    assert names(after["spec"]["containers"]) == ["sidefetch", "app", "logs"]
    assert names(after["spec"]["initContainers"]) == ["migrate"]
    assert "restartPolicy" not in after["spec"]["containers"][0]


def test_variables_that_hold_brokers_hold_the_sidecar_wherever_it_runs_already() -> None:
    native, other = done(pod()), done(pod(native="false"))

    def brokers(after: dict[str, Any], part: str) -> list[str | None]:
        return [environ(each)["BROKERS"] for each in after["spec"][part] if "BROKERS" in names(each.get("env", []))]

    assert brokers(native, "initContainers") == brokers(native, "containers") == ["127.0.0.1:9092"]
    assert brokers(other, "initContainers") == ["kafka-1:9092"]
    assert brokers(other, "containers") == ["127.0.0.1:9092"]


def test_only_the_containers_that_are_named_are_pointed_at_the_sidecar() -> None:
    after = done(pod(containers="app"))

    assert environ(after["spec"]["initContainers"][1])["BROKERS"] == "kafka-1:9092"
    assert environ(after["spec"]["containers"][0]) == {"MODE": "fast", "BROKERS": "127.0.0.1:9092"}


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:19092", "127.0.0.1:19092"),
        ("[::1]:9092,127.0.0.1:9092", "[::1]:9092"),
        ("localhost:7", "localhost:7"),
    ],
)
def test_the_address_is_the_first_that_the_sidecar_listens_on(listen: str, address: str) -> None:
    after = done(pod(option_listen=listen))

    assert environ(after["spec"]["containers"][0])["BROKERS"] == address
    assert environ(after["spec"]["initContainers"][0])["SIDEFETCH_LISTEN"] == listen


def test_pod_that_does_not_request_a_sidecar_is_left_unchanged() -> None:
    for before in (pod(inject="false"), {**pod(), "metadata": {"name": "orders"}}, {"spec": pod()["spec"]}):
        answer = inject(before, DEFAULTS)

        assert answer.pod is before
        assert (answer.has_sidecar, answer.warnings) == (False, ())


def test_sidefetch_annotations_without_inject_annotation_cause_a_warning() -> None:
    before = pod()
    del before["metadata"]["annotations"]["sidefetch.io/inject"]

    answer = inject(before, DEFAULTS)

    assert answer.pod is before
    assert answer.warnings == ('sidefetch.io/inject is not there, so nothing is injected; give it as "true"',)


@pytest.mark.parametrize("annotations", [{}, {"native": "false"}, WITH_ALL, {**WITH_ALL, "native": "false"}])
def test_it_is_idempotent_and_can_be_taken_out_again(annotations: dict[str, str]) -> None:
    before = pod(**annotations)

    after = done(before)

    assert done(after) is after
    assert remove_injection(after) == before


def test_reinjection_applies_changed_annotations() -> None:
    after = done(pod())
    later = deepcopy(after)
    later["metadata"]["annotations"]["option.sidefetch.io/memory"] = "64MiB"

    assert done(later) == done(pod(option_memory="64MiB"))


def test_reinjection_keeps_foreign_changes_to_the_sidecar() -> None:
    after = deepcopy(done(pod()))
    after["spec"]["initContainers"][0]["volumeMounts"] = [{"name": "token", "mountPath": "/token"}]
    after["spec"]["initContainers"][0]["terminationMessagePath"] = "/dev/termination-log"

    assert done(after) is after


def test_reinjection_restores_a_removed_sidecar() -> None:
    after = deepcopy(done(pod()))
    del after["spec"]["initContainers"][0]

    assert done(after) == done(pod())


def test_with_the_annotation_off_the_pod_is_as_it_was() -> None:
    after = deepcopy(done(pod(**WITH_ALL)))
    after["metadata"]["annotations"]["sidefetch.io/inject"] = "false"

    assert done(after) == pod(**{**WITH_ALL, "inject": "false"})


def test_a_variable_that_was_changed_since_is_not_put_back() -> None:
    after = deepcopy(done(pod()))
    after["spec"]["containers"][0]["env"][1]["value"] = "kafka-9:9092"

    assert environ(remove_injection(after)["spec"]["containers"][0])["BROKERS"] == "kafka-9:9092"


def test_with_transparent_the_redirection_is_made_before_the_sidecar_runs() -> None:
    after = done(pod(mode="transparent", redirect_ports="9092,9095-9099", redirect_networks="10.0.0.0/8"))

    redirect, sidecar, migrate = after["spec"]["initContainers"]
    assert names([redirect, sidecar, migrate]) == ["sidefetch-redirect", "sidefetch", "migrate"]
    assert redirect["args"] == ["redirect", "install", "--ports", "9092,9095-9099", "--networks", "10.0.0.0/8"]
    assert redirect["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN"]}
    assert sidecar["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert environ(sidecar)["SIDEFETCH_TRANSPARENT"] == f"127.0.0.1:{LISTEN_PORT},[::1]:{LISTEN_PORT}"


def test_the_redirection_leaves_the_sidecars_connections_alone(capsys: pytest.CaptureFixture[str]) -> None:
    redirect, sidecar, _ = done(pod(mode="transparent"))["spec"]["initContainers"]

    assert main([*redirect["args"], "--dry-run"]) == 0

    spared = capsys.readouterr().out.partition("meta skuid { ")[2].partition(" } return")[0]
    assert str(sidecar["securityContext"]["runAsUser"]) in spared.split(", ")


def test_without_native_sidecars_redirection_starts_after_other_init_containers() -> None:
    after = done(pod(mode="transparent", native="false"))

    assert names(after["spec"]["initContainers"]) == ["migrate", "sidefetch-redirect"]


def test_its_memory_limit_comes_from_the_option_unless_it_is_given() -> None:
    def memory(**annotations: str) -> tuple[str, str]:
        resources = done(pod(**annotations))["spec"]["initContainers"][0]["resources"]
        assert "cpu" not in resources["limits"]
        return resources["requests"]["memory"], resources["limits"]["memory"]

    assert memory(option_memory="64MiB") == ("96Mi", "304Mi")
    assert memory(option_memory="64MiB", option_max_connections="2000") == ("96Mi", "490Mi")
    assert memory(option_memory="64MiB", option_request_memory="128MiB") == ("96Mi", "544Mi")
    assert memory(memory="300Mi") == ("300Mi", "300Mi")


def test_number_of_connections_follows_from_the_memory_unless_it_is_given() -> None:
    def connections(**annotations: str) -> str:
        sidecar = done(pod(option_memory="64MiB", **annotations))["spec"]["initContainers"][0]
        (value,) = [each["value"] for each in sidecar["env"] if each["name"] == "SIDEFETCH_MAX_CONNECTIONS"]
        return str(value)

    assert connections() == "512"
    assert connections(option_max_connections="700") == "700"


def test_sidecar_probes_use_the_configured_admin_port() -> None:
    sidecar = done(pod(option_admin_listen="0.0.0.0:19080"))["spec"]["initContainers"][0]

    probes = [sidecar[kind]["httpGet"] for kind in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert [(each["path"], each["port"]) for each in probes] == [
        ("/startupz", 19080),
        ("/readyz", 19080),
        ("/livez", 19080),
    ]
    assert sidecar["ports"] == [{"name": "sidefetch-admin", "containerPort": 19080}]
    assert environ(sidecar)["SIDEFETCH_ADMIN_LISTEN"] == "0.0.0.0:19080"


def test_zone_variables_are_injected_only_without_rack_annotation() -> None:
    reported = environ(done(pod(rack="eu-1a"))["spec"]["initContainers"][0])
    asked = environ(done(pod())["spec"]["initContainers"][0])

    assert reported["SIDEFETCH_RACK"] == "eu-1a"
    assert {"TOPOLOGY_ZONE", "NODE_NAME"} & set(reported) == set()
    assert {"TOPOLOGY_ZONE", "NODE_NAME"} <= set(asked)


def test_injected_variables_reference_only_variables_defined_before() -> None:
    defaults = Defaults.parse('{"image": "i", "otel": {"OTEL_TRACES_SAMPLER": "always_on"}}', "f")
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://$(HOST_IP):4318"}
    for rack in ("", "eu-1a"):
        before = pod(bootstrap_servers="kafka-1:9092", rack=rack, **endpoint)

        env = done(before, defaults)["spec"]["initContainers"][0]["env"]

        known: set[str] = set()
        for each in env:  # Kubernetes substitutes variables that are defined before
            assert set(re.findall(r"\$\((\w+)\)", each.get("value", ""))) <= known
            known.add(each["name"])
        assert len(known) == len(env)
        values = {each["name"]: each.get("value") for each in env}
        assert values["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://$(HOST_IP):4318"
        assert values["OTEL_TRACES_SAMPLER"] == "always_on"
        assert "k8s.pod.name=$(POD_NAME)" in str(values["OTEL_RESOURCE_ATTRIBUTES"])


def test_files_come_from_a_secret_and_the_ledger_has_a_volume_that_is_large_enough() -> None:
    after = done(pod(**WITH_ALL, option_ledger_max_size="512MiB"))

    secret, ledger = after["spec"]["volumes"][1:]
    assert secret["secret"] == {"secretName": "kafka"}
    assert ledger["emptyDir"] == {"sizeLimit": f"{512 + 64}Mi"}
    mounts = after["spec"]["initContainers"][1]["volumeMounts"]
    assert [(each["mountPath"], each.get("readOnly", False)) for each in mounts] == [
        ("/etc/sidefetch/secret", True),
        ("/var/lib/sidefetch", False),
    ]


def test_annotations_win_over_defaults_and_empty_ones_undo_them() -> None:
    defaults = Defaults.parse(
        '{"image": "i:1", "bootstrap-servers": "a:1", "rack": "r", "native": false, "option": {"verify": 0.5}}', "f"
    )

    def settings(**annotations: str) -> dict[str, str | None]:
        spec = done(pod(**annotations), defaults)["spec"]
        return environ(spec["containers"][0])

    assert settings()["SIDEFETCH_RACK"] == "r"
    assert settings(rack="s", bootstrap_servers="b:2")["SIDEFETCH_BOOTSTRAP_SERVERS"] == "b:2"
    assert "SIDEFETCH_RACK" not in settings(rack="")
    assert "SIDEFETCH_VERIFY" not in settings(option_verify="")
    assert settings(option_admin_listen="", mode="")["SIDEFETCH_ADMIN_LISTEN"] == "0.0.0.0:9080"


@pytest.mark.parametrize("annotations", [{}, {"native": "false"}, WITH_ALL])
def test_injected_pod_conforms_to_the_kubernetes_schema(annotations: dict[str, str]) -> None:
    kubernetes_validate.validate(done(pod(**annotations)), "1.36", strict=True)


def test_status_annotation_holds_exactly_the_data_to_undo_injection() -> None:
    status = json.loads(done(pod())["metadata"]["annotations"][STATUS])

    assert status["env"] == {
        "app": {"BROKERS": "kafka-1:9092,kafka-2:9092"},
        "migrate": {"BROKERS": "kafka-1:9092"},
    }
    assert status["initContainers"] == ["sidefetch"]
    assert status["containers"] == status["volumes"] == []


@given(
    extra=st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=5), max_size=3),
    volumes=st.none() | st.lists(st.fixed_dictionaries({"name": st.sampled_from("abc")}), max_size=2),
    init=st.booleans(),
    native=st.sampled_from(["true", "false"]),
)
def test_whatever_else_a_pod_holds_stays_and_comes_back(
    extra: dict[str, Any], volumes: list[dict[str, Any]] | None, init: bool, native: str
) -> None:
    before = pod(spec={**{f"x{k}": v for k, v in extra.items()}, "volumes": volumes}, native=native)
    if not init:
        del before["spec"]["initContainers"]

    after = done(before)

    assert remove_injection(after) == before
    kept = {key: value for key, value in after["spec"].items() if key.startswith("x")}
    assert kept == {key: value for key, value in before["spec"].items() if key.startswith("x")}


@pytest.mark.parametrize("annotations", [{}, {"native": "false"}, WITH_ALL])
def test_sidecar_environment_yields_the_requested_configuration(annotations: dict[str, str]) -> None:
    before = pod(**annotations)
    spec = done(before)["spec"]
    (sidecar,) = (each for each in [*spec["initContainers"], *spec["containers"]] if each["name"] == "sidefetch")

    reported = {name: value for name, value in environ(sidecar).items() if value is not None}

    assert (
        load_settings(flags={}, environ=reported).config
        == injection_request(before["metadata"]["annotations"], DEFAULTS).config
    )


@pytest.mark.parametrize("option", [each for each in OPTIONS if each.default_text], ids=lambda each: each.name)
def test_every_option_can_be_given_by_an_annotation(option: Option) -> None:
    annotation = {f"option_{option.name.replace('-', '_')}": option.default_text}

    sidecar = done(pod(**annotation))["spec"]["initContainers"][0]

    assert environ(sidecar)[option.env] == option.default_text


def paths(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Yield the paths to all values in *node*."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(each for key, value in inner for each in paths(value, (*path, key)))]


ODD = pod(
    **WITH_ALL,
    spec={
        "securityContext": {"runAsUser": 7},
        "terminationGracePeriodSeconds": 5,
        "restartPolicy": "Always",
        "os": {"name": "linux"},
    },
    app={
        "securityContext": {"runAsUser": 8},
        "ports": [{"containerPort": 8080, "protocol": "TCP"}],
        "readinessProbe": {"httpGet": {"port": 8080}},
        "env": [{"name": "BROKERS", "value": "kafka-1:9092"}],
    },
)


def meaning(of: Any) -> Any:
    """Return the meaning for the API, to which an empty list is none."""
    return {**of, "spec": {key: value for key, value in of["spec"].items() if value not in (None, [])}}


@pytest.mark.parametrize("native", ["true", "false"])
@pytest.mark.parametrize(
    "junk",
    [None, True, 0, 1.5, "", "x", [], [None], [{}], [[]], {}, {"name": []}, date(2026, 1, 1)],
    ids=lambda junk: json.dumps(junk, default=str),
)
def test_whatever_stands_anywhere_in_a_pod_is_taken_or_refused(junk: Any, native: str) -> None:
    for *parents, last in paths(ODD)[1:]:
        before = deepcopy(ODD)
        before["metadata"]["annotations"]["sidefetch.io/native"] = native
        node = before
        for key in parents:
            node = node[key]
        node[last] = junk

        with suppress(InjectionRefused):
            after = inject(before, DEFAULTS).pod
            assert meaning(remove_injection(after)) == meaning(before)
