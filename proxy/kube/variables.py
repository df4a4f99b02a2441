"""The application's variables that hold the brokers' addresses: found, pointed at the sidecar, and put back."""

from collections.abc import Iterator, Mapping
from typing import Any

from proxy.config.kinds import ADDRESSES
from proxy.kube.annotations import PREFIX, Asked
from proxy.kube.pods import each_container, named

__all__ = ["Was", "pointed", "problems", "restored"]

Was = Mapping[str, Mapping[str, str]]
"""What variables held before, by the container's name and theirs."""


def problems(spec: Mapping[str, Any], asked: Asked) -> Iterator[str]:
    """Why what is asked for cannot be pointed at the sidecar."""
    there = named(spec, "containers") | named(spec, "initContainers")
    for name in asked.containers or ():
        if name not in there:
            yield f"{PREFIX}containers: {name}: there is no such container; there is {', '.join(sorted(there))}"
        elif not asked.is_native and name not in named(spec, "containers"):
            yield (
                f"{PREFIX}containers: {name}: an init container runs before a sidecar that is not native; leave it"
                f' out, or give {PREFIX}native: "true"'
            )
    for name in asked.env:
        found = [(each["name"], entry) for each in _meant(spec, asked) for entry in _entries(each, name)]
        if not found:
            yield (
                f"{PREFIX}env: {name}: no container has such a variable; name one that is in env with a value"
                " (those of envFrom cannot be seen)"
            )
        owners = [owner for owner, _ in found]
        for owner, entry in found:
            if owners.count(owner) > 1:
                yield f"{PREFIX}env: {name}: container {owner} has it more than once; leave one"
            elif entry.get("valueFrom"):
                yield (
                    f"{PREFIX}env: {name}: container {owner} has it from elsewhere (valueFrom); give it a value"
                    f" here, or have {asked.address} stand there and leave it out of {PREFIX}env"
                )
            elif not _is_addresses(entry.get("value")):
                yield (
                    f"{PREFIX}env: {name}: container {owner} has {entry.get('value', '')!r} in it, more or less"
                    f" than HOST:PORT,...; put {asked.address} into it yourself, and leave it out of {PREFIX}env"
                )


def pointed(spec: Mapping[str, Any], asked: Asked) -> tuple[dict[str, Any], Was]:
    """*spec* with the variables that hold addresses holding the sidecar's, and what they held."""
    was = {
        each["name"]: {name: entry["value"] for name in asked.env for entry in _entries(each, name)}
        for each in _meant(spec, asked)
    }
    was = {container: held for container, held in was.items() if held}
    return _with_values(spec, {owner: dict.fromkeys(held, asked.address) for owner, held in was.items()}), was


def restored(spec: Mapping[str, Any], was: Was, address: str) -> dict[str, Any]:
    """*spec* with the values of before, where *address* still stands."""
    return _with_values(spec, was, only=address)


def _meant(spec: Mapping[str, Any], asked: Asked) -> Iterator[Mapping[str, Any]]:
    for each in each_container(spec if asked.is_native else {"containers": spec["containers"]}):
        if asked.containers is None or each["name"] in asked.containers:
            yield each


def _entries(container: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return [entry for entry in container.get("env") or () if entry["name"] == name]


def _is_addresses(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(ADDRESSES.parse(value))
    except ValueError:
        return False


def _with_values(spec: Mapping[str, Any], values: Was, only: str | None = None) -> dict[str, Any]:
    def entry(given: Mapping[str, Any], held: Mapping[str, str]) -> Mapping[str, Any]:
        is_meant = given["name"] in held and only in (None, given.get("value"))
        return {**given, "value": held[given["name"]]} if is_meant else given

    changed = dict(spec)
    for part in ("initContainers", "containers"):
        if any(each["name"] in values for each in spec.get(part) or ()):
            changed[part] = [
                {**each, "env": [entry(one, values[each["name"]]) for one in each["env"]]}
                if each["name"] in values and each.get("env")
                else each
                for each in spec[part]
            ]
    return changed
