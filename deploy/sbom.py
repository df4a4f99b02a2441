"""A CycloneDX bill of materials of the image: ``python deploy/sbom.py > deploy/sbom.cdx.json``.

It lists the packages of ``runtime.lock`` that Linux needs, with all hashes of the lock: one for each published file
of a version. Licences and dependencies come from the metadata of the installed packages, so that exactly these
versions must be installed. The same lock gives the same bytes. Python and the system of the base image are not
listed.

Source: CycloneDX 1.6, in JSON; the purl specification, for ``pkg:pypi``.
"""

import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK: Final = Path(__file__).with_name("runtime.lock")
LINUX: Final = {
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "python_version": "3.11",
    "python_full_version": "3.11.0",
}
"""The values of environment markers; the oldest Python needs the most packages."""
OURS: Final = "sidefetch"
EXTRAS: Final = ("kube",)
"""The extras of Sidefetch that the lock contains."""

Component = dict[str, Any]


def read_lock(lock: str) -> Iterator[tuple[Requirement, list[str]]]:
    """Yield the requirements of *lock* that apply to Linux, with their SHA-256 hashes."""
    for entry in re.split(r"^(?=\S)", lock, flags=re.MULTILINE)[1:]:
        requirement = Requirement(entry.partition("\\")[0])
        if is_needed(requirement):
            yield requirement, re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)


def is_needed(requirement: Requirement, extra: str = "") -> bool:
    return requirement.marker is None or requirement.marker.evaluate({**LINUX, "extra": extra})


def component(requirement: Requirement, hashes: list[str]) -> Component:
    """Return the entry of a package. Raises: SystemExit: the installed version is not the locked one."""
    found = distribution(requirement.name)
    if f"=={found.version}" != str(requirement.specifier):
        raise SystemExit(f"{requirement.name} {found.version} is installed, and not {requirement}: make install")
    ref = purl(found)
    return {
        "type": "library",
        "bom-ref": ref,
        "name": canonicalize_name(requirement.name),
        "version": found.version,
        "purl": ref,
        "hashes": [{"alg": "SHA-256", "content": each} for each in hashes],
        "licenses": licences(found),
    }


def purl(found: Distribution) -> str:
    return f"pkg:pypi/{canonicalize_name(found.name)}@{found.version}"


def licences(found: Distribution) -> list[dict[str, Any]]:
    """Return the licences in the package's metadata; none if it has none."""
    if expression := found.metadata["License-Expression"]:
        return [{"expression": expression}]
    prefix = "License :: "
    classified = [each for each in found.metadata.get_all("Classifier", []) if each.startswith(prefix)]
    names = [each.rpartition(" :: ")[2] for each in classified] or [found.metadata["License"]]
    return [{"license": {"name": name}} for name in names if name]


def depends_on(found: Distribution) -> list[str]:
    extras = ("", *EXTRAS) if found.name == OURS else ("",)
    required = [Requirement(each) for each in found.requires or ()]
    needed = {each.name for each in required if any(is_needed(each, extra) for extra in extras)}
    return sorted(purl(distribution(name)) for name in needed)


def build_sbom(lock: str) -> dict[str, Any]:
    ours = distribution(OURS)
    components = [component(*each) for each in read_lock(lock)]
    graph = {purl(each): depends_on(each) for each in (ours, *(distribution(c["name"]) for c in components))}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": purl(ours),
                "name": OURS,
                "version": ours.version,
                "purl": purl(ours),
            }
        },
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": needed} for ref, needed in graph.items()],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(build_sbom(LOCK.read_text(encoding="utf-8")), indent=2) + "\n")
