import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "deploy" / "requirements.lock").read_text()
SPARK_LOCK = (ROOT / "deploy" / "spark.lock").read_text()
RUNTIME_LOCK = (ROOT / "deploy" / "runtime.lock").read_text()
CLIENTS = ROOT / "tests" / "clients"
OF_OLD_CLIENTS = sorted((CLIENTS / "locks").iterdir())


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return re.sub(r"[._-]+", "-", found[0]).lower()


def test_the_locks_pin_all_that_the_project_names_and_hash_all_that_they_pin() -> None:
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = metadata["project"]["optional-dependencies"] | metadata["dependency-groups"]
    of_spark = {_name(each) for group in ("spark", "spark-test") for each in groups.pop(group)}
    others = {_name(each) for group in groups.values() for each in group}
    always = {_name(each) for each in metadata["project"]["dependencies"]}

    assert always | others <= _pinned(LOCK)
    assert always | of_spark <= _pinned(SPARK_LOCK)


def test_packages_in_both_locks_have_same_versions() -> None:
    """They are installed side by side."""
    shared = _pinned(LOCK) & _pinned(SPARK_LOCK)

    assert shared >= {"attrs", "confluent-kafka"}
    assert _versions(LOCK, shared) == _versions(SPARK_LOCK, shared)


def test_runtime_lock_is_subset_of_tested_lock() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]

    assert {_name(each) for each in named} <= _pinned(RUNTIME_LOCK)
    assert {"pytest", "aiokafka", "cython"}.isdisjoint(_pinned(RUNTIME_LOCK))
    # Markers may differ: a package that one needs on Windows only, another needs everywhere.
    assert _files(RUNTIME_LOCK).items() <= _files(LOCK).items()


def _versions(lock: str, names: set[str]) -> set[str]:
    return {each for each in _files(lock) if _name(each) in names}


def _files(lock: str) -> dict[str, frozenset[str]]:
    """The hashes of each version that is pinned."""
    return {
        entry.split()[0]: frozenset(re.findall(r"--hash=(\S+)", entry))
        for entry in re.split(r"^(?=\S)", lock, flags=re.MULTILINE)[1:]
    }


@pytest.mark.parametrize("lock", OF_OLD_CLIENTS, ids=lambda lock: lock.stem)
def test_the_locks_of_old_clients_pin_their_version_and_hash_all_that_they_pin(lock: Path) -> None:
    assert re.search(r"^\S+==" + re.escape(lock.stem.rpartition("-")[2]) + " ", lock.read_text(), re.MULTILINE)
    assert _pinned(lock.read_text())


def _pinned(lock: str) -> set[str]:
    entries = re.split(r"^(?=\S)", lock, flags=re.MULTILINE)[1:]
    assert all(re.match(r"\S+==\S+ ", entry) and "--hash=sha256:" in entry for entry in entries)
    return {_name(entry) for entry in entries}


@pytest.mark.parametrize(
    "lock",
    [
        ROOT / "deploy" / "requirements.lock",
        ROOT / "deploy" / "runtime.lock",
        ROOT / "tests" / "mutation.lock",
        *OF_OLD_CLIENTS,
        *(CLIENTS / lock for lock in ("node/package-lock.json", "go/go.mod", "go/go.sum")),
    ],
    ids=lambda lock: lock.name,
)
def test_the_lock_files_name_no_registry(lock: Path) -> None:
    assert "://" not in lock.read_text()
