"""The manifests of deploy/kubernetes, against what injection makes and what Kubernetes takes."""

from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest

from proxy.cli import main
from tests.kube.charts import CHART, documents_of, loaded

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
