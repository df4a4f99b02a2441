"""The application's environment variables with broker addresses: found, set to the sidecar's, and restored."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from proxy.config.option_types import ADDRESSES
from proxy.kube.annotations import PREFIX, InjectionRequest
from proxy.kube.pods import each_container, named

__all__ = ["Was", "is_addresses", "point_at_sidecar", "problems", "restore_variables"]

_MOST_SHOWN: Final = 20
Was = Mapping[str, Mapping[str, str]]
"""The values of environment variables before injection, by container and variable name."""


def problems(spec: Mapping[str, Any], asked: InjectionRequest) -> Iterator[str]:
    """Yield the reasons why the variables that *asked* names cannot be set to the sidecar's address.

    For example, a container or variable of that name is missing, or its value is not a list of broker addresses.
    """
    there = named(spec, "containers") | named(spec, "initContainers")
    shown = ", ".join(sorted(there)[:_MOST_SHOWN])
    entries_of = {each["name"]: _entries(each) for each in _requested_containers(spec, asked)}
    for name in asked.containers or ():
        if name not in there:
            yield f"{PREFIX}containers: {name}: there is no such container; there is {shown}"
        elif not asked.is_native and name not in named(spec, "containers"):
            yield (
                f"{PREFIX}containers: {name}: an init container runs before a sidecar that is not native; leave it"
                f' out, or give {PREFIX}native: "true"'
            )
    for name in asked.env:
        found = {owner: entries[name] for owner, entries in entries_of.items() if name in entries}
        if not found:
            yield (
                f"{PREFIX}env: {name}: no container has such a variable; name one that is in env with a value"
                " (those of envFrom cannot be seen)"
            )
        for owner, entries in found.items():
            why = _unusable_reason(entries, asked.address)
            if why:
                yield f"{PREFIX}env: {name}: container {owner} {why}"


def _unusable_reason(entries: Sequence[Mapping[str, Any]], address: str) -> str:
    """Return the reason why a variable cannot be set to *address*; empty if it can."""
    if len(entries) > 1:
        return "has it more than once; leave one"
    (entry,) = entries
    if entry.get("valueFrom"):
        return (
            f"has it from elsewhere (valueFrom); give it a value here, or have {address} stand there and leave it"
            f" out of {PREFIX}env"
        )
    if not is_addresses(entry.get("value")):
        # The message does not have the value: it may contain a password.
        return (
            f"holds something else in it than HOST:PORT,...; put {address} into it yourself, and leave it out of"
            f" {PREFIX}env"
        )
    return ""


def point_at_sidecar(spec: Mapping[str, Any], asked: InjectionRequest) -> tuple[dict[str, Any], Was]:
    """Return a copy of a pod's *spec* whose requested variables have the sidecar's address, and their old values.

    *asked* names the variables and the containers to change; old values are by container and variable.
    ``problems`` must have yielded nothing.
    """
    was = {}
    for each in _requested_containers(spec, asked):
        entries = _entries(each)
        held = {name: entry["value"] for name in asked.env for entry in entries.get(name, ())}
        if held:
            was[each["name"]] = held
    return _with_values(spec, {owner: dict.fromkeys(held, asked.address) for owner, held in was.items()}), was


def restore_variables(spec: Mapping[str, Any], was: Was, address: str) -> dict[str, Any]:
    """Return a copy of a pod's *spec* with the values *was*, from before injection, in its variables.

    Only variables that still have the value *address*, the sidecar's, are restored.
    """
    return _with_values(spec, was, only=address)


def _requested_containers(spec: Mapping[str, Any], asked: InjectionRequest) -> Iterator[Mapping[str, Any]]:
    for each in each_container(spec if asked.is_native else {"containers": spec["containers"]}):
        if asked.containers is None or each["name"] in asked.containers:
            yield each


def _entries(container: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the entries of a container's ``env`` by the variable's name."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for entry in container.get("env") or ():
        found.setdefault(entry["name"], []).append(entry)
    return found


def is_addresses(value: object) -> bool:
    """Return whether *value* is a text ``HOST:PORT,...`` and nothing else, so that it may be replaced."""
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
