"""The bill of materials lists exactly the deployed packages."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DEPLOY = Path(__file__).parents[1] / "deploy"
LOCK = (DEPLOY / "runtime.lock").read_text()


@pytest.fixture(scope="module")
def bill() -> Any:
    return json.loads((DEPLOY / "sbom.cdx.json").read_text())


def test_the_bill_is_the_one_that_is_made_from_the_lock() -> None:
    command = [sys.executable, str(DEPLOY / "sbom.py")]
    made = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

    assert made == (DEPLOY / "sbom.cdx.json").read_text(), "make sbom"


def test_each_package_that_is_deployed_is_in_it_with_version_hashes_and_licence(bill: Any) -> None:
    pinned = {}
    for entry in re.split(r"^(?=\S)", LOCK, flags=re.MULTILINE)[1:]:
        name, version = entry.split()[0].split("==")
        pinned[f"pkg:pypi/{name}@{version}"] = set(re.findall(r"sha256:([0-9a-f]{64})", entry))

    assert {each["purl"]: {h["content"] for h in each["hashes"]} for each in bill["components"]} == pinned
    for each in bill["components"]:
        assert each["purl"] == f"pkg:pypi/{each['name']}@{each['version']}"
        assert {h["alg"] for h in each["hashes"]} == {"SHA-256"}
        assert each["licenses"], f"{each['name']} tells none"


def test_whatever_a_package_needs_is_in_it_too_and_all_is_needed_by_sidefetch(bill: Any) -> None:
    needs = {each["ref"]: set(each["dependsOn"]) for each in bill["dependencies"]}
    known = {each["bom-ref"] for each in bill["components"]}
    reached, to_look_at = set(), {bill["metadata"]["component"]["bom-ref"]}
    while to_look_at:
        reached |= to_look_at
        to_look_at = set().union(*(needs[ref] for ref in to_look_at)) - reached

    assert reached - {bill["metadata"]["component"]["bom-ref"]} == known
