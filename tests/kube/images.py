"""The image of deploy/, built and run for real, on a base of Debian's own packages: registries may be far away.

Containers share the host's network: nothing is set up that would outlive them.
"""

import re
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import attrs

from tests.kept import kept
from tests.prerequisites import require

__all__ = ["ROOT", "Container", "Image", "built", "ran", "removed"]

ROOT: Final = Path(__file__).parents[2]
_LOCKS: Final = (ROOT / "deploy" / "requirements.lock", ROOT / "deploy" / "runtime.lock")
_BASE_PACKAGES: Final = "python3,python3-venv,python3-dev,gcc,libc6-dev,ca-certificates,nftables"
_BASE: Final = "localhost/sidefetch-test-base"
_RUN: Final = ("--runtime", "runc", "--cgroup-manager", "cgroupfs")
_LIMITS: Final = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=1024:1024")
_LONG_S: Final = 900.0


@attrs.frozen
class Image:
    """One in podman's storage."""

    name: str

    @property
    def size_bytes(self) -> int:
        """The size of its layers, not compressed."""
        return int(_said("podman", "image", "inspect", self.name, "--format", "{{.Size}}"))

    def files(self) -> list[Path]:
        """All that is in it, but for folders, as absolute paths in it."""
        container = _said("buildah", "from", "--pull-never", self.name)
        try:
            root = Path(_said("buildah", "mount", container))
            found = [Path("/") / each.relative_to(root) for each in root.rglob("*") if not each.is_dir()]
            _said("buildah", "umount", container)
            return found
        finally:
            _said("buildah", "rm", container)


@attrs.frozen
class Container:
    """One that runs, with a read-only file system and without capabilities."""

    name: str

    @classmethod
    @contextmanager
    def running(
        cls, image: Image, *arguments: str, env: Mapping[str, str], memory_bytes: int | None = None
    ) -> Iterator[Self]:
        """While in context; *memory_bytes* is its limit."""
        name = f"sidefetch-test-{uuid.uuid4().hex[:8]}"
        limits = [*_LIMITS, *(("--memory", str(memory_bytes)) if memory_bytes else ())]
        variables = [part for key, value in env.items() for part in ("--env", f"{key}={value}")]
        hardened = ["--network", "host", "--read-only", "--read-only-tmpfs=false", "--cap-drop", "ALL"]
        command = ["podman", *_RUN, "run", "--detach", "--name", name, *hardened, *limits, *variables]
        _said(*command, "--security-opt", "no-new-privileges", "--pull", "never", image.name, *arguments)
        try:
            yield cls(name)
        finally:
            subprocess.run(["podman", *_RUN, "rm", "--force", "--time", "0", name], capture_output=True, check=True)

    @property
    def status(self) -> dict[str, str]:
        """Return the kernel's status of its process."""
        pid = _said("podman", *_RUN, "inspect", self.name, "--format", "{{.State.Pid}}")
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}

    @property
    def is_running(self) -> bool:
        return _said("podman", *_RUN, "inspect", self.name, "--format", "{{.State.Running}}") == "true"

    def executed(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Return the output of a *command* inside the container."""
        return subprocess.run(
            ["podman", *_RUN, "exec", self.name, *command], capture_output=True, text=True, check=False, timeout=60
        )

    def log_text(self) -> str:
        done = subprocess.run(
            ["podman", *_RUN, "logs", self.name], capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout + done.stderr

    def stopped(self) -> int:
        """Stop the container; return its exit code."""
        _said("podman", *_RUN, "stop", "--time", "20", self.name)
        return int(_said("podman", *_RUN, "inspect", self.name, "--format", "{{.State.ExitCode}}"))


def ran(image: Image, *arguments: str, options: Sequence[str] = (), said: str = "") -> str:
    """Return the output for the input *said*, without network, and with no rights except podman's *options*."""
    hardened = ["--network", "none", "--read-only", "--read-only-tmpfs=false", "--cap-drop", "ALL"]
    command = ["podman", *_RUN, "run", "--rm", "--interactive", *hardened, *_LIMITS, *options, "--pull", "never"]
    done = subprocess.run(
        [*command, image.name, *arguments], input=said, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def built() -> tuple[Image, str]:
    """Return the image and the output of its build, which takes a minute, and more the first time."""
    require("root", "containers")
    packages = kept("image-base", [], _debootstrapped, of=_BASE_PACKAGES)
    wheels = kept("image-wheels", _LOCKS, _downloaded)
    base = f"{_BASE}:{packages.name}"
    if subprocess.run(["podman", "image", "exists", base], check=False).returncode:
        _said("podman", "import", str(packages / "base.tar"), base)
    name = f"localhost/sidefetch-test:{uuid.uuid4().hex[:8]}"
    arguments = {"PYTHON": base, "PIP_FIND_LINKS": "/wheels-here", "PIP_NO_INDEX": "1"}
    command = ["buildah", "build", "--isolation", "chroot", "--network", "host", "--format", "docker"]
    reported = _said(
        *(*command, "--volume", f"{wheels}:/wheels-here:ro", "--file", str(ROOT / "deploy" / "Dockerfile")),
        *(f"--build-arg={key}={value}" for key, value in arguments.items()),
        *("--tag", name, str(ROOT)),
    )
    return Image(name), reported


def removed(image: Image) -> None:
    """No more in storage."""
    _said("podman", "rmi", "--force", image.name)


def _debootstrapped(folder: Path) -> None:
    root = folder / "root"
    _said("debootstrap", "--variant=minbase", f"--include={_BASE_PACKAGES}", "bookworm", str(root))
    _said("tar", "--create", "--file", str(folder / "base.tar"), "--directory", str(root), ".")
    _said("rm", "--recursive", "--one-file-system", str(root))


def _downloaded(folder: Path) -> None:
    """Download the packages of both locks that the image needs, for this machine's Python and architecture."""
    everything, runtime = (lock.read_text(encoding="utf-8") for lock in _LOCKS)
    entries = re.split(r"^(?=[a-z])", everything, flags=re.MULTILINE)
    build = folder / "build.lock"
    build.write_text("".join(each for each in entries if re.match(r"(cython|setuptools)==", each)))
    deployed = folder / "runtime.lock"
    deployed.write_text(runtime)
    for lock in (build, deployed):
        _said(
            *(
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--no-deps",
                "--require-hashes",
                "--only-binary=:all:",
            ),
            *("--python-version", "3.11", "--requirement", str(lock), "--dest", str(folder)),
        )


def _said(*command: str) -> str:
    """Return the output of a successful command."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LONG_S, cwd=ROOT)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout.strip()
