"""Injection into YAML as people write it, by ``sidefetch inject``."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from proxy.cli import main
from proxy.errors import ConfigError
from proxy.kube.annotations import Defaults
from proxy.kube.inject import inject
from proxy.kube.manifests import inject_text
from tests.kube.pods import DEFAULTS

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: orders   # its name
spec:
  replicas: 2
  template:
    metadata:
      annotations:
        # asked for
        sidefetch.io/inject: "true"
        sidefetch.io/env: BROKERS   # pointed
        option.sidefetch.io/upstream-tls: "on"
    spec:
      # the app
      containers:
        - name: app  # main
          image: 'orders:7'
          env:
            # where kafka is
            - name: BROKERS
              value: kafka-1:9092 # three of them
          volumeMounts:
            - {name: d, mountPath: /d}
      volumes:
        - name: d
          configMap: {name: c, defaultMode: 0644}
      # the end
"""
OTHER = """\
# The orders service
apiVersion: v1
kind: ConfigMap
metadata: {name: c}   # keep
data:
    odd:   "indent"
    sidefetch.io/inject: 'true'
"""
OFF = DEPLOYMENT.replace('inject: "true"', 'inject: "false"')


def read(text: str) -> Any:
    return list(YAML(typ="safe", pure=True).load_all(text))


def done(text: str, defaults: Defaults = DEFAULTS) -> str:
    return inject_text(text, "f", defaults).text


def test_injected_manifest_equals_pod_injected_by_webhook() -> None:
    (before,), (after,) = read(DEPLOYMENT), read(done(DEPLOYMENT))

    expected = inject(before["spec"]["template"], DEFAULTS).pod
    assert after == {**before, "spec": {**before["spec"], "template": expected}}


def test_comments_and_the_way_it_is_written_stay() -> None:
    before, after = DEPLOYMENT.splitlines(), done(DEPLOYMENT).splitlines()

    changed = [line for line in before if line not in after]
    assert changed == ["              value: kafka-1:9092 # three of them"]
    assert '              value: "127.0.0.1:9092" # three of them' in after
    left = iter(after)
    assert all(line in left for line in before if line not in changed)  # in their order


def test_documents_in_which_nothing_changes_stay_byte_for_byte() -> None:
    text = f"{OTHER}---  # next\n{DEPLOYMENT}---\r\n# only words\n--- \n{OFF}---"

    after = done(text)

    assert after.startswith(f"{OTHER}---  # next\n")
    assert after.endswith(f"---\r\n# only words\n--- \n{OFF}---")
    assert done(OTHER + "---\n" + OFF) == OTHER + "---\n" + OFF


@pytest.mark.parametrize("step", ["  ", "    "])
@pytest.mark.parametrize("indent", ["", "  "])
def test_injected_yaml_follows_the_indentation_of_the_manifest(step: str, indent: str) -> None:
    text = f"""\
apiVersion: v1
kind: Pod
metadata:
{step}annotations:
{step}{step}sidefetch.io/inject: "true"
{step}{step}note: |
{step}{step}{step}text:
{step}{step}{step}   - is no list
spec:
{step}securityContext:
{step}{step}runAsUser: 1000
{step}containers:
{step}{indent}- name: app
{step}{indent}  args:
{step}{indent}  {indent}- x
"""
    after = done(text)

    assert [line for line in text.splitlines() if line not in after.splitlines()] == []
    assert f"\n{step}{indent}- name: sidefetch\n" in after
    assert f"\n{step}{indent}  securityContext:\n{step}{indent}  {step}allowPrivilegeEscalation" in after


def test_again_changes_nothing_and_switched_off_it_is_out_again() -> None:
    after = done(DEPLOYMENT)

    assert done(after) == after
    assert read(done(after.replace('inject: "true"', 'inject: "false"'))) == read(OFF)


def test_injected_strings_stay_strings_in_yaml_1_1() -> None:
    after = done(DEPLOYMENT)

    assert 'value: "on"\n' in after
    old = YAML(typ="safe", pure=True)
    old.version = (1, 1)
    container = old.load(after)["spec"]["template"]["spec"]["initContainers"][0]
    assert all(isinstance(each["value"], str) for each in container["env"] if "value" in each)
    assert container["resources"]["requests"] == {"cpu": "50m", "memory": "96Mi"}


@pytest.mark.parametrize(
    ("api", "kind", "path"),
    [
        ("v1", "Pod", ()),
        ("v1", "ReplicationController", ("spec", "template")),
        ("apps/v1", "Deployment", ("spec", "template")),
        ("apps/v1", "StatefulSet", ("spec", "template")),
        ("apps/v1", "DaemonSet", ("spec", "template")),
        ("apps/v1", "ReplicaSet", ("spec", "template")),
        ("batch/v1", "Job", ("spec", "template")),
        ("batch/v1", "CronJob", ("spec", "jobTemplate", "spec", "template")),
    ],
)
def test_pods_are_found_in_every_workload_and_in_lists_of_them(api: str, kind: str, path: tuple[str, ...]) -> None:
    document: Any = read(DEPLOYMENT)[0]["spec"]["template"]
    for key in reversed(path):
        document = {key: document}
    workload = {**document, "apiVersion": api, "kind": kind}
    listed = {"apiVersion": "v1", "kind": "List", "items": [{"kind": "Service"}, workload]}

    for text in (json.dumps(workload), json.dumps(listed)):
        after = json.loads(done(text))
        pod = after if after["kind"] == kind else after["items"][1]
        for key in path:
            pod = pod[key]
        assert pod["spec"]["initContainers"][0]["name"] == "sidefetch"


@pytest.mark.parametrize(
    "text", ["", "\n", "# words\n", "---\n", "[1, 2]\n", "7", "kind: Deployment\n", "kind: Pod\n"]
)
def test_text_without_pod_is_left_unchanged(text: str) -> None:
    assert done(text) == text


def test_the_same_kind_of_another_group_is_left_alone() -> None:
    text = DEPLOYMENT.replace("apps/v1", "example.com/v1")

    assert done(text) == text


def test_yaml_anchor_shared_by_containers_is_split_where_values_differ() -> None:
    text = (
        DEPLOYMENT.replace("          env:\n", "          env: &env\n")
        .replace("      volumes:\n", "        - name: direct\n          env: *env\n      volumes:\n")
        .replace("env: BROKERS   # pointed", "env: BROKERS\n        sidefetch.io/containers: app")
    )

    app, direct = read(done(text))[0]["spec"]["template"]["spec"]["containers"]

    assert (app["env"][0]["value"], direct["env"][0]["value"]) == ("127.0.0.1:9092", "kafka-1:9092")


@pytest.mark.parametrize(
    ("broken", "line"),
    [("a: [1\n", 9), ("a: b: c\n", 8), ("\ta: 1\n", 8), ("a: 1\na: 2\n", 9), ("{{- if .Values.a }}\n", 8)],
)
def test_invalid_yaml_is_reported_with_file_and_line(broken: str, line: int) -> None:
    with pytest.raises(ConfigError) as wrong:
        done(f"{OTHER}---\n{broken}")

    (reported,) = wrong.value.args
    assert reported.startswith((f"f:{line}: not YAML: ", f"f:{line + 1}: not YAML: "))
    assert "\n" not in reported


def test_problems_of_all_documents_are_reported_with_their_lines() -> None:
    wrong = DEPLOYMENT.replace("spec:\n      # the app", "spec:\n      hostNetwork: true\n      # the app")
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": read(wrong)}, indent=1)

    with pytest.raises(ConfigError) as refused:
        done(f"{OTHER}---\n{wrong}---\n{listed}", Defaults())

    reported = refused.value.args
    assert [each.partition(": spec.")[0] for each in reported if "hostNetwork" in each] == [
        "f:9: Deployment/orders",
        f"f:{9 + wrong.count(chr(10)) + 1 + 4}: Deployment/orders",
    ]
    assert len(reported) == 6


def test_annotation_on_workload_instead_of_pod_template_causes_a_warning() -> None:
    text = DEPLOYMENT.replace("  name: orders", "  annotations: {sidefetch.io/inject: 'true'}\n  name: orders")

    (reported,) = inject_text(text, "f", DEFAULTS).warnings

    assert reported == (
        "f:1: Deployment/orders: metadata.annotations: sidefetch.io/inject says nothing here; put it into"
        " spec.template.metadata.annotations"
    )


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "a.yaml").write_text(DEPLOYMENT)
    (tmp_path / "b.yaml").write_text(OTHER.rstrip("\n"))
    defaults = {"image": "i:1", "bootstrap-servers": "kafka-1:9092"}
    (tmp_path / "defaults.json").write_text(json.dumps(defaults))
    return [str(tmp_path / name) for name in ("a.yaml", "b.yaml", "defaults.json")]


def test_the_command_prints_one_stream_of_all_files(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inject", "-f", files[0], "-f", files[1], "--defaults", files[2]]) == 0

    deployment, other = read(capsys.readouterr().out)
    assert deployment["spec"]["template"]["spec"]["initContainers"][0]["image"] == "i:1"
    assert other == read(OTHER)[0]


def test_inject_command_reads_manifest_from_stdin(
    files: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(DEPLOYMENT))

    assert main(["inject", "-f", "-", "--defaults", files[2]]) == 0

    assert "- name: sidefetch\n" in capsys.readouterr().out


def test_diff_option_prints_only_the_difference(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inject", "-f", files[0], "-f", files[1], "--defaults", files[2], "--diff"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"--- {files[0]}"
    assert [line for line in lines if line.startswith("-")][1:] == [
        "-              value: kafka-1:9092 # three of them"
    ]
    assert "+        - name: sidefetch" in lines


def test_nothing_is_printed_where_something_is_refused(
    files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inject", "-f", files[1], "-f", files[0], "-f", "/nowhere", "--defaults", files[2]]) == 2
    assert capsys.readouterr().err.startswith("sidefetch: /nowhere: cannot be read: ")

    assert main(["inject", "-f", files[1], "-f", files[0]]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert [line.rpartition(": not given")[0] for line in said.err.splitlines()] == [
        f"sidefetch: {files[0]}:1: Deployment/orders: sidefetch.io/bootstrap-servers",
        f"sidefetch: {files[0]}:1: Deployment/orders: sidefetch.io/image",
    ]
