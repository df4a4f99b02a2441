"""The manifests of deploy/kubernetes equal the result of injection, and match Kubernetes' schemas."""

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest

from proxy.cli import main, parser
from proxy.cli.options import settings_of
from proxy.config import Address
from proxy.kube.annotations import Defaults
from proxy.kube.inject import inject
from proxy.net.observability.probes import PROBES
from tests.kube.charts import CHART, documents_of, loaded, rendered
from tests.pages import section

EXAMPLES: Final = CHART.parent / "deploy" / "kubernetes"
FILES: Final = sorted(EXAMPLES.glob("*.yaml"))


def pod_of(document: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = document["spec"]["template"]["spec"]
    return spec


def test_the_sidecar_by_hand_is_the_one_that_is_injected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inject", "-f", str(EXAMPLES / "application.yaml")]) == 0
    (injected,) = documents_of(capsys.readouterr().out)

    assert pod_of(injected) == pod_of(loaded(EXAMPLES / "sidecar.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_kubernetes_takes_the_examples(file: Path) -> None:
    kubernetes_validate.validate(loaded(file), kubernetes_validate.latest_version(), strict=True)


def test_container_with_probes_conforms_to_kubernetes_and_the_program() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", section("deploy/README.md", "Probes and shutdown"), re.DOTALL)
    ((container,),) = (each["containers"] for each in documents_of(example))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"containers": [container | {"image": "i"}]}}
    kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)

    settings = settings_of(parser(container["args"][:1]).parse_args(container["args"]))
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")]
    assert [probe["path"] for probe in probes] == [*PROBES]
    assert {Address("0.0.0.0", probe["port"]) for probe in probes} == {settings.config.admin.listen}


def commands() -> list[list[str]]:
    """Return the commands that ``deploy/README.md`` begins with."""
    _, _, rest = section("deploy/README.md", "Kubernetes").partition("\n    ")
    return [shlex.split(line) for line in rest.partition("\n\n")[0].splitlines()]


def test_five_commands_lead_from_nothing_to_a_sidecar() -> None:
    build, push, install, patch, wait = commands()

    assert build[build.index("-t") + 1] == push[2]
    assert install[:4] == ["helm", "install", "sidefetch", "./helm"]
    assert push[2].startswith(
        next(part.partition("=")[2] for part in install if part.startswith("image.repository="))
    )
    assert push[2].endswith(f":{loaded(CHART / 'Chart.yaml')['appVersion']}")
    assert patch[2:4] == wait[3:5] == ["deployment", "orders"]


@pytest.mark.kubernetes
def test_readme_commands_inject_the_documented_sidecar() -> None:
    _, _, install, patch, _ = commands()
    values = [part for flag, value in pairwise(install) if flag == "--set" for part in (flag, value)]
    (config,) = (each for each in rendered(*values) if each["kind"] == "ConfigMap")
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": json.loads(patch[-1])["spec"]["template"]["metadata"],
        "spec": {
            "containers": [
                {
                    "name": "app",
                    "image": "app",
                    "env": [{"name": "KAFKA_BOOTSTRAP_SERVERS", "value": "kafka-1:9092"}],
                }
            ]
        },
    }

    done = inject(pod, Defaults.parse(config["data"]["defaults.json"], "defaults.json"))

    (sidecar,) = done.pod["spec"]["initContainers"]
    (container,) = done.pod["spec"]["containers"]
    assert f"--container {sidecar['name']} " in section("deploy/README.md", "Kubernetes").replace("\n", " ")
    assert sidecar["image"] == "registry.example/sidefetch:0.1.0"
    assert {"name": "SIDEFETCH_BOOTSTRAP_SERVERS", "value": "kafka-1:9092"} in sidecar["env"]
    assert container["env"][0]["value"] == "127.0.0.1:9092"
