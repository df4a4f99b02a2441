"""All refusals at once, with their remedies."""

import json
from copy import deepcopy
from typing import Any

import pytest

from proxy.errors import ConfigError
from proxy.kube.annotations import ANNOTATIONS, Defaults
from proxy.kube.errors import InjectionRefused
from proxy.kube.inject import inject
from tests.kube.pods import DEFAULTS, pod


def reasons(before: dict[str, Any], defaults: Defaults = DEFAULTS) -> list[str]:
    untouched = deepcopy(before)
    with pytest.raises(InjectionRefused) as refused:
        inject(before, defaults)
    assert before == untouched
    return list(refused.value.reasons)


def reason(before: dict[str, Any], defaults: Defaults = DEFAULTS) -> str:
    (only,) = reasons(before, defaults)
    return only


def app(**more: Any) -> dict[str, Any]:
    return {**pod()["spec"]["containers"][0], **more}


def test_all_problems_are_reported_at_once() -> None:
    before = pod(
        spec={"hostNetwork": True}, mod="transparent", native="maybe", option_grace="soon", option_memry="64MiB"
    )

    assert [each.split(": ")[0] for each in reasons(before, Defaults())] == [
        "sidefetch.io/mod",
        "sidefetch.io/native",
        "option.sidefetch.io/memry",
        "option.sidefetch.io/grace",
        "sidefetch.io/bootstrap-servers",
        "sidefetch.io/image",
        "spec.hostNetwork",
    ]


def test_number_and_length_of_reported_problems_are_limited() -> None:
    many = {f"option_unknown{number}": "1" for number in range(1000)}

    found = reasons(pod(**many, native="x" * 10_000))

    assert len(found) == 21
    assert found[-1] == "and more problems"
    assert max(map(len, found)) < 1100


@pytest.mark.parametrize("annotation", ["env", "containers"])
def test_more_than_a_hundred_names_in_an_annotation_are_refused(annotation: str) -> None:
    names = ",".join(f"name{number}" for number in range(101))

    assert "; accepted: up to 100 names of " in reasons(pod(**{annotation: names}))[0]


def test_the_network_of_the_host_is_refused() -> None:
    assert reason(pod(spec={"hostNetwork": True})).startswith(
        "spec.hostNetwork: true: the sidecar's ports would be"
    )


def test_windows_is_refused() -> None:
    assert "image is for Linux" in reason(pod(spec={"os": {"name": "windows"}}))


@pytest.mark.parametrize(
    ("more", "port", "remedy"),
    [
        ({"ports": [{"containerPort": 9092}]}, 9092, "option.sidefetch.io/listen an address with another port"),
        (
            {"ports": [{"containerPort": 9100}]},
            9100,
            "option.sidefetch.io/broker-ports another range than 9093-9192",
        ),
        (
            {"ports": [{"containerPort": 9080}]},
            9080,
            "option.sidefetch.io/admin-listen an address with another port",
        ),
        ({"readinessProbe": {"httpGet": {"path": "/", "port": 9080}}}, 9080, "admin-listen"),
        ({"livenessProbe": {"grpc": {"port": 9192}}}, 9192, "broker-ports"),
    ],
)
def test_ports_that_meet_are_refused(more: dict[str, Any], port: int, remedy: str) -> None:
    reported = reason(pod(app=more))

    assert reported.startswith(f"container app: port {port} is one that the sidecar listens on; give ")
    assert remedy in reported


def test_ports_that_do_not_meet_are_none_of_our_business() -> None:
    ports = [{"containerPort": 8080}, {"containerPort": 9092, "protocol": "UDP"}, {"containerPort": 9193}]
    probe = {"httpGet": {"path": "/", "port": "http"}}

    assert inject(pod(app={"ports": ports, "startupProbe": probe}), DEFAULTS).has_sidecar
    elsewhere = {"option_listen": "127.0.0.1:19092", "option_broker_ports": "19093-19192"}
    assert inject(pod(app={"ports": [{"containerPort": 9092}]}, **elsewhere), DEFAULTS).has_sidecar


def test_transparent_mode_has_a_port_of_its_own() -> None:
    ports = {"ports": [{"containerPort": 15092}]}

    assert inject(pod(app=ports), DEFAULTS).has_sidecar
    assert "port 15092" in reason(pod(app=ports, mode="transparent"))


@pytest.mark.parametrize("native", ["true", "false"])
@pytest.mark.parametrize(
    "spec",
    [
        {"securityContext": {"runAsUser": 65532}},
        {"containers": [app(securityContext={"runAsUser": 65532})], "securityContext": {"runAsUser": 7}},
    ],
)
def test_transparent_mode_needs_another_user_than_the_sidecars(spec: dict[str, Any], native: str) -> None:
    before = pod(spec=spec, mode="transparent", native=native)

    assert any(
        each.startswith("container app: runs as user 65532, as the sidecar does") for each in reasons(before)
    )
    before["metadata"]["annotations"]["sidefetch.io/mode"] = "address"
    assert inject(before, DEFAULTS).has_sidecar


def test_container_without_run_as_user_causes_a_warning_in_transparent_mode() -> None:
    unknown = inject(pod(mode="transparent"), DEFAULTS)
    known = inject(pod(mode="transparent", spec={"securityContext": {"runAsUser": 1000}}), DEFAULTS)

    assert len(unknown.warnings) == 3
    assert all("does not say by runAsUser" in each for each in unknown.warnings)
    assert known.warnings == ()


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"mod": "address"}, "sidefetch.io/mod: there is no such name; did you mean sidefetch.io/mode?"),
        ({"inject": "yes"}, 'sidefetch.io/inject: \'yes\'; accepted: "true" or "false"'),
        ({"mode": "magic"}, "sidefetch.io/mode: 'magic'; accepted: address or transparent"),
        ({"memory": "much"}, "sidefetch.io/memory: 'much'; accepted: a quantity, as 128Mi"),
        ({"redirect_ports": "9092-"}, "sidefetch.io/redirect-ports: '9092-'; accepted: ports and FIRST-LAST"),
        ({"redirect_ports": "9-8"}, "sidefetch.io/redirect-ports: '9-8'; accepted: ports and FIRST-LAST"),
        ({"redirect_networks": "10.0.0.1/8"}, "sidefetch.io/redirect-networks: '10.0.0.1/8'; accepted: networks"),
        ({"bootstrap_servers": "kafka"}, "sidefetch.io/bootstrap-servers: 'kafka'; accepted: HOST:PORT["),
        ({"bootstrap_servers": ""}, "sidefetch.io/bootstrap-servers: not given; accepted: HOST:PORT["),
        ({"image": ""}, "sidefetch.io/image: not given; accepted: Sidefetch's image"),
        ({"option_memry": "1MiB"}, "option.sidefetch.io/memry: there is no such name; did you mean option."),
        ({"option_grace": "soon"}, "option.sidefetch.io/grace: 'soon'; accepted: 0s to 3600s"),
        ({"option_rack": "a"}, "option.sidefetch.io/rack: has an annotation of its own; give"),
        ({"option_fetch_buffer": "1GiB"}, "fetch-buffer: 1GiB is more than half of memory"),
        (
            {"option_admin_listen": "127.0.0.1:9080"},
            "option.sidefetch.io/admin-listen: 127.0.0.1:9080: a kubelet's",
        ),
        (
            {"option_upstream_tls_ca": "/ca", "option_upstream_tls": "on"},
            "option.sidefetch.io/upstream-tls-ca: /ca is",
        ),
        ({"option_ledger": "rows"}, "option.sidefetch.io/ledger: rows cannot be a volume's"),
        (
            {"OTEL_exporter": "x"},
            "otel.sidefetch.io/OTEL_exporter: no variable of OpenTelemetry; accepted: OTEL_...",
        ),
        ({"containers": "ap"}, "sidefetch.io/containers: ap: there is no such container; there is app"),
        ({"containers": "migrate", "native": "false"}, "sidefetch.io/containers: migrate: an init container"),
        ({"env": "SERVERS"}, "sidefetch.io/env: SERVERS: no container has such a variable"),
        ({"env": "MODE"}, "sidefetch.io/env: MODE: container app holds something else"),
        ({"env": "", "containers": "app"}, "sidefetch.io/containers: of no use without sidefetch.io/env"),
        (
            {"redirect_networks": "10.0.0.0/8"},
            "sidefetch.io/redirect-networks: of no use with sidefetch.io/mode addr",
        ),
        ({"status": "{}"}, "sidefetch.io/status: cannot be read"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_invalid_annotation_is_rejected(annotations: dict[str, str], expected: str) -> None:
    assert any(each.startswith(expected) for each in reasons(pod(**annotations)))


@pytest.mark.parametrize("name", ["sidefetch", "sidefetch-redirect"])
def test_a_container_of_the_same_name_is_refused(name: str) -> None:
    assert reason(pod(spec={"containers": [app(), {"name": name, "image": "i"}]})).startswith(
        f"container {name}: there"
    )


def test_a_volume_of_the_same_name_is_refused() -> None:
    before = pod(spec={"volumes": [{"name": "sidefetch-secret"}]}, secret="kafka")

    assert reason(before).startswith("volume sidefetch-secret: there is one already")


def test_variable_with_value_from_is_rejected_with_remedy() -> None:
    entry = {"name": "BROKERS", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}

    reported = reason(pod(app={"env": [entry]}))

    assert reported.startswith("sidefetch.io/env: BROKERS: container app has it from elsewhere (valueFrom)")
    assert "have 127.0.0.1:9092 stand there" in reported


def test_a_variable_that_is_there_twice_is_refused() -> None:
    entry = {"name": "BROKERS", "value": "kafka-1:9092"}

    assert "has it more than once" in reason(pod(app={"env": [entry, entry]}))


def test_pod_that_runs_to_completion_requires_native_sidecar() -> None:
    assert inject(pod(spec={"restartPolicy": "Never"}), DEFAULTS).has_sidecar
    reported = reason(pod(spec={"restartPolicy": "Never"}, native="false"))
    assert reported.startswith("spec.restartPolicy: Never: the pod would never end")


def test_pod_without_env_annotation_causes_a_warning_with_listen_address() -> None:
    before = pod(option_listen="127.0.0.1:19092")
    del before["metadata"]["annotations"]["sidefetch.io/env"]

    (reported,) = inject(before, DEFAULTS).warnings

    assert "have the application use 127.0.0.1:19092" in reported


def test_termination_grace_period_below_sidecar_grace_causes_a_warning() -> None:
    short = {"terminationGracePeriodSeconds": 5}

    (reported,) = inject(pod(spec=short, native="false"), DEFAULTS).warnings

    assert reported.startswith("the pod is ended 5 s after SIGTERM, and the sidecar serves on for 10 s")
    assert inject(pod(spec=short), DEFAULTS).warnings == ()


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ({}, "spec: no mapping"),
        ({"spec": {"containers": []}}, "spec.containers: there is none"),
        ({"spec": {"containers": {"name": "a"}}}, "spec.containers: no list of things"),
        ({"spec": {"containers": [{"image": "a"}]}}, "spec.containers: no list of things"),
        ({"spec": {"containers": [{"name": "a", "env": {}}]}}, "spec.containers: a: env is no list"),
    ],
)
def test_invalid_pod_is_rejected_only_if_it_requests_a_sidecar(before: dict[str, Any], expected: str) -> None:
    assert reason({**before, "metadata": pod()["metadata"]}).startswith(expected)
    assert inject(before, DEFAULTS).pod is before


@pytest.mark.parametrize("metadata", [[], None, {"annotations": []}, {"annotations": ["a"]}])
def test_malformed_metadata_requests_no_sidecar(metadata: Any) -> None:
    assert not inject({"metadata": metadata, "spec": pod()["spec"]}, DEFAULTS).has_sidecar


def test_an_annotation_that_is_no_text_is_refused() -> None:
    before = pod()
    before["metadata"]["annotations"].update({"sidefetch.io/native": True})

    assert reason(before) == "sidefetch.io/native: true is no text; put it in quotes"
    before["metadata"]["annotations"].update({"sidefetch.io/inject": True})
    assert reason(before) == "sidefetch.io/inject: true is no text; put it in quotes"


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("{", ["f: not JSON: "]),
        ("[]", ["f: accepted: an object"]),
        ('{"otel": {"LD_PRELOAD": "x", "OTEL_A": []}}', ["f: LD_PRELOAD: no variable", "f: OTEL_A: [] is no text"]),
        ('{"option": 7}', ["f: accepted: an object"]),
        (
            '{"imag": "i", "env": "X", "native": "maybe", "option": {"rack": "r", "grace": "soon"}}',
            ["f: imag: there", "f: env: there", "f: rack: ", "f: native: 'maybe'", "f: option: grace"],
        ),
    ],
)
def test_invalid_defaults_are_reported_when_they_are_parsed(text: str, problems: list[str]) -> None:
    with pytest.raises(ConfigError) as wrong:
        Defaults.parse(text, "f")

    assert len(wrong.value.args) == len(problems)
    assert all(reported.startswith(expected) for reported, expected in zip(wrong.value.args, problems, strict=True))


def test_every_annotation_has_a_default_that_can_be_parsed() -> None:
    for each in ANNOTATIONS:
        if each.default:
            each.kind.parse(each.default)


@pytest.mark.parametrize("inject", ["true", "false"])
@pytest.mark.parametrize(
    "forged",
    [
        {"containers": ["app"]},
        {"initContainers": ["migrate"]},
        {"volumes": ["data"]},
        {"env": {"app": {"MODE": "slow"}}, "address": "fast"},
        {"env": {"app": 7}},
        {"containers": 7},
    ],
)
def test_forged_status_annotation_is_rejected(forged: dict[str, Any], inject: str) -> None:
    honest = {"digest": "", "address": "", "env": {}, "initContainers": [], "containers": [], "volumes": []}

    before = pod(inject=inject, status=json.dumps({**honest, **forged}))

    assert reason(before).startswith("sidefetch.io/status: cannot be read; take it out by hand")


def test_error_messages_do_not_contain_values_of_variables() -> None:
    before = pod(app={"env": [{"name": "BROKERS", "value": "kafka://user:hunter2@kafka:9092"}]})

    assert all("hunter2" not in each for each in reasons(before))
