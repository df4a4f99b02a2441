"""The distributions of ``make dist``, installed into empty environments."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from urllib.error import URLError

import attrs
import pytest

from proxy.version import VERSION
from tests.ports import free_ports
from tests.processes import Process

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_NOT_COPIED = shutil.ignore_patterns(
    *(".git", ".venv", ".cache", ".hypothesis", ".*_cache", "__pycache__"),
    *("build", "dist", "node_modules", "*.egg-info", "*.so", "kernel.c"),
)
_OF_THE_TEST_RUN = ("MAKE", "MFLAGS", "PYTHON", "SIDEFETCH_", "VIRTUAL_ENV")
"""Prefixes of variables that would affect an installed program."""
_DEPENDENCIES = Path(attrs.__file__).parents[1]
"""The folder in which this environment's packages are installed."""


@attrs.frozen
class Environment:
    """A virtual environment in *folder*, without pip."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> "Environment":
        """Create an environment that finds the dependencies of Sidefetch, but not Sidefetch itself.

        Python ignores .pth files in a folder that a .pth file names, so the editable install of this repository,
        which consists of such files, stays out of sight.
        """
        venv.create(folder, with_pip=False)
        environment = cls(folder)
        (environment.site / "dependencies.pth").write_text(f"{_DEPENDENCIES}\n")
        return environment

    @property
    def site(self) -> Path:
        (found,) = self.folder.glob("lib/python*/site-packages")
        return found

    @property
    def sidefetch(self) -> str:
        return str(self.folder / "bin" / "sidefetch")

    def install(self, wheel: Path) -> None:
        pip = [sys.executable, "-m", "pip", "--python", str(self.folder / "bin" / "python"), "install"]
        said = _run(*pip, "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", str(wheel))
        assert said.returncode == 0, said.stderr

    def run_sidefetch(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return _run(self.sidefetch, *arguments, cwd=self.folder)


def _run(*command: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=120)


@pytest.fixture(scope="module", autouse=True)
def _clean_environment() -> Iterator[None]:
    """Hide the repository, which PYTHONPATH may name, from all that the tests start."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [*os.environ]:
            if name.startswith(_OF_THE_TEST_RUN):
                patch.delenv(name)
        yield


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder ``dist`` after ``make dist`` in a copy of the repository."""
    copy = tmp_path_factory.mktemp("dist") / "copy"
    shutil.copytree(ROOT, copy, ignore=_NOT_COPIED)
    made = _run("make", "--old-file=install", "dist", f"BIN={Path(sys.executable).parent}", cwd=copy)
    assert made.returncode == 0, made.stdout + made.stderr
    assert not list(copy.glob("*.egg-info"))
    return copy / "dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    created = Environment.create(tmp_path_factory.mktemp("environment") / "venv")
    created.install(wheel)
    return created


@pytest.fixture(scope="module")
def installed(environment: Environment) -> Distribution:
    (found,) = distributions(path=[str(environment.site)])
    return found


def _package_files() -> set[str]:
    """Return the files of the package in the repository, without documents and build products."""
    found = (path for path in (ROOT / "proxy").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {
        path.relative_to(ROOT).as_posix()
        for path in found
        if path.suffix not in {".md", ".so"} and path.name != "kernel.c"
    }


def test_make_dist_builds_one_sdist_and_one_wheel_of_the_version(dist: Path) -> None:
    wheel, sdist = sorted(os.listdir(dist))

    assert re.fullmatch(rf"sidefetch-{re.escape(VERSION)}-.*\.whl", wheel)
    assert sdist == f"sidefetch-{VERSION}.tar.gz"


def test_sdist_contains_only_package_and_build_files(dist: Path) -> None:
    top = f"sidefetch-{VERSION}/"
    with tarfile.open(dist / f"sidefetch-{VERSION}.tar.gz") as archive:
        files = {member.name.removeprefix(top) for member in archive if member.isfile()}

    written_by_setuptools = {"PKG-INFO", "setup.cfg"}
    others = {"LICENSE", "MANIFEST.in", "README.md", "pyproject.toml"}
    assert {name for name in files if not name.startswith("sidefetch.egg-info/")} == (
        _package_files() | others | written_by_setuptools
    )


def test_the_wheel_has_every_file_of_the_package_and_the_compiled_kernel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}

    compiled = {name for name in files if name.endswith(".so")}
    assert files - compiled == _package_files()
    assert {name.partition(".")[0] for name in compiled} == (
        {"proxy/convert/kernel"} if shutil.which("cc") else set()
    )


def test_the_wheel_installs_the_package_its_metadata_and_nothing_else(environment: Environment) -> None:
    installed = {path.name for path in environment.site.iterdir()} - {"dependencies.pth"}
    programs = {path.name for path in (environment.folder / "bin").iterdir()}

    assert installed == {"proxy", f"sidefetch-{VERSION}.dist-info"}
    assert {name for name in programs if not re.match(r"python|activate|Activate", name)} == {"sidefetch"}


def test_the_metadata_has_licence_description_and_required_python(installed: Distribution) -> None:
    metadata = installed.metadata

    assert (metadata["Name"], metadata["Version"]) == ("sidefetch", VERSION)
    assert metadata["License-Expression"] == PROJECT["license"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert installed.read_text("licenses/LICENSE") == (ROOT / "LICENSE").read_text()
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert metadata["Summary"] == PROJECT["description"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["Description"].strip() == (ROOT / "README.md").read_text().strip()
    assert metadata.get_all("Classifier") == PROJECT["classifiers"]
    assert metadata.get_all("Provides-Extra") == sorted(PROJECT["optional-dependencies"])


def test_the_installed_command_prints_its_version(environment: Environment) -> None:
    said = environment.run_sidefetch("--version")

    assert (said.returncode, said.stdout, said.stderr) == (0, f"sidefetch {VERSION}\n", "")


def test_every_installed_command_can_be_imported(environment: Environment) -> None:
    said = environment.run_sidefetch("--help")

    assert (said.returncode, said.stderr) == (0, "")
    assert {"run", "check", "demo", "inject", "report"} <= set(re.findall(r"^    (\S+)", said.stdout, re.MULTILINE))


def test_the_installed_package_runs_its_compiled_kernel(environment: Environment) -> None:
    program = "import proxy.convert.kernel as kernel; print(kernel.__file__)"
    said = _run(str(environment.folder / "bin" / "python"), "-c", program, cwd=environment.folder)

    assert said.stdout.startswith(str(environment.site)), said.stderr
    assert said.stdout.endswith(".so\n" if shutil.which("cc") else ".py\n")


def test_the_installed_command_serves_the_status_page(environment: Environment, tmp_path: Path) -> None:
    nobody, listen, admin = free_ports(3)
    addresses = {"bootstrap-servers": nobody, "listen": listen, "admin-listen": admin}
    options = [f"--{name}=127.0.0.1:{port}" for name, port in addresses.items()]

    with Process([environment.sidefetch, "run", *options], log=tmp_path / "run.log", cwd=tmp_path):
        page = _page_at(f"http://127.0.0.1:{admin}/")

    assert page.startswith((ROOT / "proxy" / "net" / "observability" / "page.html").read_text().partition("\n")[0])


def _page_at(url: str) -> str:
    end = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as response:
                return str(response.read(), "utf-8")
        except URLError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


@pytest.mark.parametrize("is_last", [False, True], ids=["sidefetch-last", "proxy.py-last"])
def test_sidefetch_refuses_to_run_where_proxy_py_is_installed(is_last: bool, wheel: Path, tmp_path: Path) -> None:
    wheels = [_proxy_py_wheel(tmp_path), wheel]
    environment = Environment.create(tmp_path / "venv")

    for each in reversed(wheels) if is_last else wheels:
        environment.install(each)

    for arguments in (["--version"], ["check", "--bootstrap-servers", "127.0.0.1:1"]):
        said = environment.run_sidefetch(*arguments)
        assert (said.returncode, said.stdout) == (2, "")
        assert said.stderr.startswith(
            f"sidefetch: the distributions sidefetch and proxy.py are both installed in {environment.site}: "
        )


def test_sidefetch_runs_where_proxy_py_is_in_another_folder(environment: Environment, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with zipfile.ZipFile(_proxy_py_wheel(tmp_path)) as archive:
        archive.extractall(other)
    link = environment.site / "other.pth"
    link.write_text(f"{other}\n")

    try:
        said = environment.run_sidefetch("--version")
    finally:
        link.unlink()

    assert (said.returncode, said.stdout) == (0, f"sidefetch {VERSION}\n")


def _proxy_py_wheel(folder: Path) -> Path:
    """Write a wheel with the files of proxy.py 2.4.10 that overwrite Sidefetch's, and one that does not."""
    info = "proxy.py-2.4.10.dist-info"
    files = {
        "proxy/__init__.py": "from .proxy import main\n",
        "proxy/__main__.py": "from .proxy import main\n\nmain()\n",
        "proxy/proxy.py": "def main():\n    raise SystemExit('this is proxy.py')\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: proxy.py\nVersion: 2.4.10\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    path = folder / "proxy.py-2.4.10-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, text)
    return path
