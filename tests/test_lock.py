import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "deploy" / "requirements.lock").read_text()
RUNTIME_LOCK = (ROOT / "deploy" / "runtime.lock").read_text()
CLIENTS = ROOT / "tests" / "clients"
OF_OLD_CLIENTS = sorted((CLIENTS / "locks").iterdir())


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return re.sub(r"[._-]+", "-", found[0]).lower()


def test_the_lock_pins_all_that_the_project_names_and_hashes_all_that_it_pins() -> None:
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())
    named = [
        *metadata["project"]["dependencies"],
        *(each for extra in metadata["project"]["optional-dependencies"].values() for each in extra),
        *(each for group in metadata["dependency-groups"].values() for each in group),
    ]

    assert {_name(each) for each in named} <= _pinned(LOCK)


def test_the_lock_of_what_is_deployed_is_a_part_of_the_lock_that_is_tested() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]

    assert {_name(each) for each in named} <= _pinned(RUNTIME_LOCK)
    assert {"pytest", "aiokafka", "cython"}.isdisjoint(_pinned(RUNTIME_LOCK))
    # Not the markers: what one package needs on Windows only, another needs everywhere.
    assert _files(RUNTIME_LOCK).items() <= _files(LOCK).items()


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
    pinned = {_name(entry) for entry in entries if re.match(r"\S+==\S+ ", entry) and "--hash=sha256:" in entry}
    assert len(pinned) == len(entries)
    return pinned


@pytest.mark.parametrize(
    "lock",
    [
        ROOT / "deploy" / "requirements.lock",
        ROOT / "deploy" / "runtime.lock",
        *OF_OLD_CLIENTS,
        *(CLIENTS / lock for lock in ("node/package-lock.json", "go/go.mod", "go/go.sum")),
    ],
    ids=lambda lock: lock.name,
)
def test_the_lock_files_name_no_registry(lock: Path) -> None:
    assert "://" not in lock.read_text()
