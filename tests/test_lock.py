import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "deploy" / "requirements.lock").read_text()


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
    entries = re.split(r"^(?=\S)", LOCK, flags=re.MULTILINE)[1:]
    pinned = {_name(entry) for entry in entries if re.match(r"\S+==\S+ ", entry) and "--hash=sha256:" in entry}

    assert len(pinned) == len(entries)
    assert {_name(each) for each in named} <= pinned


def test_the_lock_files_name_no_registry() -> None:
    lock_of_node = (ROOT / "tests" / "clients" / "node" / "package-lock.json").read_text()

    assert "://" not in LOCK
    assert "://" not in lock_of_node
