"""Pods that the tests of injection begin with."""

from copy import deepcopy
from typing import Any

from proxy.kube.annotations import Defaults

__all__ = ["DEFAULTS", "pod"]

DEFAULTS = Defaults({"image": "example.test/sidefetch:1", "bootstrap-servers": "kafka-1:9092,kafka-2:9092"})

_POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "orders", "labels": {"app": "orders"}},
    "spec": {
        "initContainers": [
            {"name": "migrate", "image": "orders:7", "env": [{"name": "BROKERS", "value": "kafka-1:9092"}]}
        ],
        "containers": [
            {
                "name": "app",
                "image": "orders:7",
                "env": [
                    {"name": "MODE", "value": "fast"},
                    {"name": "BROKERS", "value": "kafka-1:9092,kafka-2:9092"},
                ],
                "ports": [{"containerPort": 8080}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            },
            {"name": "logs", "image": "logs:2"},
        ],
        "volumes": [{"name": "data", "emptyDir": {}}],
    },
}


def pod(*, spec: Any = None, app: Any = None, **annotations: str) -> dict[str, Any]:
    """One that asks for a sidecar, with more in its spec and its first container.

    Annotations are written with underscores, ``option_`` before those of options, and ``OTEL_`` as they are.
    """
    made = deepcopy(_POD)
    made["spec"].update(spec or {})
    made["spec"]["containers"][0].update(app or {})
    asked = {"inject": "true", "env": "BROKERS", **annotations}
    made["metadata"]["annotations"] = {_name(key): text for key, text in asked.items()}
    return made


def _name(key: str) -> str:
    if key.startswith("OTEL_"):
        return f"otel.sidefetch.io/{key}"
    prefix = "option.sidefetch.io/" if key.startswith("option_") else "sidefetch.io/"
    return prefix + key.removeprefix("option_").replace("_", "-")
