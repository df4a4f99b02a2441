"""A real API server of Kubernetes and its store, built by Go and kept."""

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.kept import kept
from tests.prerequisites import require

__all__ = ["programs"]

_MODULE: Final = Path(__file__).parent / "go"
_PROGRAMS: Final = ("apiserver", "etcd")
_VERSION: Final = "v1.36.3"
"""The version that the server reports, which is the one that go.mod requires."""
_BUILD_S: Final = 3600


def programs() -> Path:
    """The folder with ``apiserver`` and ``etcd``; takes a quarter of an hour the first time."""
    require("go")
    inputs = [_MODULE / "go.mod", _MODULE / "go.sum", *(_MODULE / name / "main.go" for name in _PROGRAMS)]
    return kept("kubernetes", inputs, _build)


def _build(folder: Path) -> None:
    flags = f"-s -w -X k8s.io/component-base/version.gitVersion={_VERSION}"
    for name in _PROGRAMS:
        done = subprocess.run(
            ["go", "build", "-trimpath", "-ldflags", flags, "-o", str(folder / name), f"./{name}"],
            cwd=_MODULE,
            env={**os.environ, "GOFLAGS": "-modcacherw"},
            capture_output=True,
            text=True,
            check=False,
            timeout=_BUILD_S,
        )
        assert done.returncode == 0, done.stdout + done.stderr
