"""Loading of the settings from flags, environment and file, with all mistakes in one error.

Pure: the input is texts and mappings.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal, cast

import attrs

from proxy.config import ENV_PREFIX, OPTIONS, SECTIONS, Config, Option, config_of, find_contradictions
from proxy.errors import ConfigError

__all__ = ["FILE_ENV", "Layer", "Settings", "load_settings"]

FILE_ENV: Final = ENV_PREFIX + "CONFIG"
"""The environment variable with the path of the TOML file, for use without ``--config``."""

_FROM_KUBERNETES: Final = re.compile(
    r"SIDEFETCH_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
"""Variables that Kubernetes sets in all pods of a namespace, for a Service called ``sidefetch…``."""


@attrs.frozen
class Layer:
    """The source of an option's value: a flag, an environment variable, the file, or the default."""

    source: Literal["flag", "environment", "file", "default"]
    name: str = ""
    """The flag, the variable, or the file and its key; empty for a default."""

    def __str__(self) -> str:
        return f"{self.source} {self.name}".rstrip()


@attrs.frozen
class Settings:
    """The loaded settings, and the source of each value."""

    config: Config
    layers: Mapping[str, Layer]
    """The source of each option's value, by the name of the option."""


@attrs.frozen
class _GivenValue:
    option: Option
    text: str
    layer: Layer


def load_settings(
    *, flags: Mapping[str, str], environ: Mapping[str, str], toml: str = "", toml_name: str = "the file"
) -> Settings:
    """Return the settings; *flags* override *environ*, which overrides *toml*; other options have their defaults.

    An empty variable counts as not set. A value is checked even if another source overrides it.

    Args:   flags: the texts of the flags by the name of the option, without dashes.
            toml: the content of the settings file; *toml_name* is the file's name in messages.
    Raises: ConfigError: values are wrong, unknown, missing or contradictory; one argument for each problem.
    """
    problems: list[str] = []
    by_name = {option.name: option for option in OPTIONS}
    given = [
        *(_GivenValue(by_name[name], text, Layer("flag", f"--{name}")) for name, text in flags.items()),
        *_from_environ(environ, problems),
        *_from_toml(toml, toml_name, problems),
    ]
    values: dict[str, object] = {}
    layers: dict[str, Layer] = {}
    for one in given:
        try:
            value = one.option.kind.parse(one.text)
        except ValueError:
            problems.append(
                f"{one.option.name}: {one.text!r} from {one.layer}; accepted: {one.option.kind.accepts}"
            )
        else:
            values.setdefault(one.option.name, value)
            layers.setdefault(one.option.name, one.layer)
    named = {one.option.name for one in given}
    problems += [
        f"{option.name}: not given; accepted: {option.kind.accepts}, by {option.flag}, {option.env}"
        f" or {option.key} in the file"
        for option in OPTIONS
        if option.required and option.name not in named
    ]
    if not problems:
        config = config_of(values)
        problems += find_contradictions(config)
    if problems:
        raise ConfigError(*problems)
    return Settings(config, {option.name: layers.get(option.name, Layer("default")) for option in OPTIONS})


def _from_environ(environ: Mapping[str, str], problems: list[str]) -> Iterator[_GivenValue]:
    by_env = {option.env: option for option in OPTIONS}
    for name in sorted(name for name in environ if name.startswith(ENV_PREFIX)):
        text = environ[name]
        if name in by_env:
            if text:
                yield _GivenValue(by_env[name], text, Layer("environment", name))
        elif name != FILE_ENV and not _is_from_kubernetes(name, text):
            problems.append(_unknown("environment variable", name, text, [*by_env, FILE_ENV]))


def _is_from_kubernetes(name: str, text: str) -> bool:
    return _FROM_KUBERNETES.fullmatch(name) is not None or (
        name.endswith("_PORT") and re.match(r"(tcp|udp|sctp)://", text) is not None
    )


def _from_toml(text: str, file: str, problems: list[str]) -> Iterator[_GivenValue]:
    if not text:
        return
    import tomllib  # most sidecars have no file, and start sooner without it

    try:
        tables: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{file}: not TOML: {error}")
        return
    by_key = {option.key: option for option in OPTIONS}
    for key, raw in _dotted(tables):
        option = by_key.get(key)
        if option is None:
            problems.append(_unknown(f"key in {file}:", key, raw, list(by_key)))
            continue
        value, where = _as_text(raw), Layer("file", f"{file}: {key}")
        if value is None:
            problems.append(f"{option.name}: {raw!r} from {where}; accepted: {option.kind.accepts}")
        else:
            yield _GivenValue(option, value, where)


def _dotted(tables: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in tables.items():
        if name in SECTIONS and isinstance(value, dict):
            yield from ((f"{name}.{key}", inner) for key, inner in cast(dict[str, object], value).items())
        else:
            yield name, value


def _as_text(raw: object) -> str | None:
    """Return a TOML value as it would be written in a flag; None if no option accepts its type."""
    if isinstance(raw, list) and raw and all(isinstance(item, str) for item in raw):
        return ",".join(raw)
    return str(raw) if isinstance(raw, str | int | float) and not isinstance(raw, bool) else None


def _unknown(what: str, name: str, value: object, known: list[str]) -> str:
    named = [key for key in known if key.rpartition(".")[2] == name]
    close = named or difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"accepted: {', '.join(known)}"
    return f"unknown {what} {name} = {value!r}; {hint}"
