"""The annotations by which a pod requests Sidefetch as a sidecar, and the defaults for pods that omit them."""

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, Literal, Self

import attrs

from proxy.config import OPTIONS, Config, config_of, find_contradictions
from proxy.config.option_types import ADDRESSES, RACK, OptionType, choice
from proxy.errors import ConfigError
from proxy.kube import redirect, sizes
from proxy.kube.errors import MOST_REASONS, InjectionRefused

__all__ = [
    "ANNOTATIONS",
    "INJECT",
    "OPTION_PREFIX",
    "OTEL_PREFIX",
    "PREFIX",
    "STATUS",
    "Annotation",
    "Defaults",
    "InjectionRequest",
    "injection_request",
    "is_on",
    "markdown_table",
]

PREFIX: Final = "sidefetch.io/"
OPTION_PREFIX: Final = "option.sidefetch.io/"
OTEL_PREFIX: Final = "otel.sidefetch.io/"
"""Prefix of annotations that set OpenTelemetry's variables, by the variables' own names."""
INJECT: Final = PREFIX + "inject"
STATUS: Final = PREFIX + "status"
_ADMIN_LISTEN: Final = "0.0.0.0:9080"
"""A kubelet sends its probes from outside the pod."""
_REDIRECTED: Final = ",".join(f"{host}:{redirect.LISTEN_PORT}" for host in ("127.0.0.1", "[::1]"))

_OURS: Final = {"bootstrap-servers": "bootstrap-servers", "rack": "rack", "transparent": "mode"}
"""Options that have an annotation of their own, with its name."""
_MOST_NAMES: Final = 100
"""The most names of one annotation: each is searched for in the whole pod."""
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_VARIABLE: Final = re.compile(r"[^=\x00-\x20\x7f,]+")
_OTEL: Final = re.compile(r"OTEL_[A-Z0-9_]+")
_QUANTITY: Final = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?")


def _matching(pattern: re.Pattern[str], accepts: str) -> OptionType:
    def parse(text: str) -> str:
        if pattern.fullmatch(text) is None:
            raise ValueError(f"{text!r} is not {accepts}")
        return text

    return OptionType(parse, accepts)


def _each(parse: Callable[[str], object], accepts: str) -> OptionType:
    def parse_all(text: str) -> tuple[object, ...]:
        parts = text.split(",")
        if len(parts) > _MOST_NAMES:
            raise ValueError(f"{len(parts)} names are more than {_MOST_NAMES}")
        return tuple(parse(part.strip()) for part in parts)

    return OptionType(parse_all, accepts, lambda v: ",".join(v))


def _ports(text: str) -> str:
    redirect.parse_ports(text)
    return text


def _networks(text: str) -> str:
    redirect.parse_networks(text)
    return text


_TRUTH: Final = OptionType(lambda text: choice("true", "false").parse(text) == "true", '"true" or "false"')
_VARIABLES: Final = _each(
    _matching(_VARIABLE, "a variable's name").parse, f"up to {_MOST_NAMES} names of variables, with commas"
)
_NAMES: Final = _each(_matching(_NAME, "a name").parse, f"up to {_MOST_NAMES} names of containers, with commas")


@attrs.frozen
class Annotation:
    """The definition of a ``sidefetch.io/`` annotation of pods: its name, accepted values, meaning and default."""

    name: str
    """The name without the prefix ``sidefetch.io/``."""
    kind: OptionType
    meaning: str
    """The meaning, for the table in ``helm/README.md``."""
    default: str = ""
    """The value for pods without it; empty for none."""
    is_the_pods: bool = False
    """Whether it concerns one pod only, so that the file of defaults for all pods cannot have it."""


ANNOTATIONS: Final = (
    Annotation("inject", _TRUTH, "Whether the pod gets the sidecar.", "false", is_the_pods=True),
    Annotation("bootstrap-servers", ADDRESSES, "The cluster's brokers: the option of that name."),
    Annotation(
        "env",
        _VARIABLES,
        "Variables of the application that hold the bootstrap servers; they are set to the sidecar's address.",
        is_the_pods=True,
    ),
    Annotation("containers", _NAMES, "Containers whose variables are changed. Default: all.", is_the_pods=True),
    Annotation(
        "mode",
        choice("address", "transparent"),
        "How clients reach the sidecar: by its address, or by redirected connections.",
        "address",
    ),
    Annotation("rack", RACK, "The rack, in place of the zone label of the pod or of its node."),
    Annotation(
        "secret",
        _matching(_NAME, "a Secret's name"),
        "A Secret of the pod's namespace, mounted at /etc/sidefetch/secret; options name its files.",
    ),
    Annotation(
        "native",
        _TRUTH,
        "Whether the sidecar is a native one (Kubernetes 1.29), or an ordinary container.",
        "true",
    ),
    Annotation("image", _matching(re.compile(r"\S+"), "an image"), "Image of the sidecar."),
    Annotation(
        "memory",
        _matching(_QUANTITY, "a quantity, as 128Mi"),
        "Memory limit and request of the container. Default: a limit computed from the option memory, and a"
        " request of 96Mi.",
    ),
    Annotation(
        "cpu-request",
        _matching(_QUANTITY, "a quantity, as 50m"),
        "CPU request of the container.",
        sizes.CPU_REQUEST,
    ),
    Annotation(
        "redirect-ports",
        OptionType(_ports, "ports and FIRST-LAST, with commas"),
        "For transparent mode: ports of the brokers.",
        "9092-9094",
    ),
    Annotation(
        "redirect-networks",
        OptionType(_networks, "networks as 10.0.0.0/8 or fd00::/8, with commas"),
        "For transparent mode: networks of the brokers. Default: all.",
    ),
)
_BY_NAME: Final = {each.name: each for each in ANNOTATIONS}
_OPTIONS: Final = {option.name: option for option in OPTIONS}


@attrs.frozen
class Defaults:
    """The default values for pods that do not set their own, from the operator's file (``--defaults``).

    They are annotations (by name without prefix), options of Sidefetch, and environment variables of OpenTelemetry.
    """

    annotations: Mapping[str, str] = attrs.field(factory=dict)
    options: Mapping[str, str] = attrs.field(factory=dict)
    otel: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def parse(cls, text: str, file: str) -> Self:
        """Decode and check the JSON *text* of a file of defaults.

        An example is ``{"image": "...", "native": true, "option": {"memory": "64MiB"}}``. Keys are annotations
        without prefix; ``option`` has options of Sidefetch, and ``otel`` environment variables of OpenTelemetry.

        Args:   file: the file's name, for messages.
        Raises: ConfigError: with one argument for each problem.
        """
        try:
            document: object = json.loads(text)
        except (ValueError, RecursionError) as wrong:
            raise ConfigError(f"{file}: not JSON: {wrong}") from None
        given = document if isinstance(document, dict) else {}
        option, otel = given.get("option", {}), given.get("otel", {})
        if not (isinstance(document, dict) and isinstance(option, dict) and isinstance(otel, dict)):
            raise ConfigError(f'{file}: accepted: an object of annotations, in it "option" and "otel" with theirs')
        problems: list[str] = []
        names = {name for name, each in _BY_NAME.items() if not each.is_the_pods}
        texts = _texts({k: v for k, v in given.items() if k not in ("option", "otel")}, names, problems)
        options = _texts(option, _OPTIONS.keys() - _OURS.keys(), problems)
        _parsed(texts, {name: _BY_NAME[name].kind for name in texts}, "", problems)
        _parsed(options, {name: _OPTIONS[name].kind for name in options}, "option: ", problems)
        variables = _variables(otel, problems, "")
        if problems:
            raise ConfigError(*(f"{file}: {problem}" for problem in problems))
        return cls(texts, options, variables)


@attrs.frozen
class InjectionRequest:
    """A pod's request for the sidecar, from its annotations and the defaults.

    Its values are valid; whether the rest of the pod permits them is for ``validation`` to check.
    """

    image: str
    mode: Literal["address", "transparent"]
    is_native: bool
    env: tuple[str, ...]
    containers: tuple[str, ...] | None
    secret: str | None
    memory: str | None
    cpu_request: str
    redirect_ports: str
    redirect_networks: str | None
    settings: Mapping[str, str]
    """The sidecar's options as texts, by name."""
    otel: Mapping[str, str]
    """Environment variables of OpenTelemetry."""
    config: Config
    """The configuration that results from the settings."""

    @property
    def address(self) -> str:
        """The sidecar's ``host:port`` within the pod, which the application uses as its bootstrap server."""
        return str(self.config.downstream.listen[0].here)


def is_on(annotations: Mapping[str, Any]) -> bool:
    """Return whether a pod with these annotations requests the sidecar, by ``sidefetch.io/inject: "true"``.

    Without that annotation it does not.

    Raises: InjectionRefused: that annotation is neither "true" nor "false".
    """
    text = annotations.get(INJECT, "false")
    if not isinstance(text, str):
        raise InjectionRefused((f"{INJECT}: {_shown(text)} is no text; put it in quotes",))
    try:
        return bool(_TRUTH.parse(text))
    except ValueError:
        raise InjectionRefused((f"{INJECT}: {text!r}; accepted: {_TRUTH.accepts}",)) from None


def injection_request(annotations: Mapping[str, Any], defaults: Defaults) -> InjectionRequest:
    """Parse and check the *annotations* of a pod, and add those of *defaults* that it lacks.

    An empty annotation removes the default. ``is_on`` is not checked.

    Raises: InjectionRefused: a name is unknown, or a value is invalid or missing; it has all such problems.
    """
    problems: list[str] = []
    texts = _annotation_texts(annotations, defaults, problems)
    values = _parsed(texts, {name: each.kind for name, each in _BY_NAME.items()}, PREFIX, problems)
    settings: dict[str, str] = {name: texts[name] for name in _OURS if name in texts and name in values}
    if values.get("mode") == "transparent":
        settings["transparent"] = _REDIRECTED
    settings |= _option_texts(annotations, defaults, problems)
    parsed = _parsed(settings, {name: each.kind for name, each in _OPTIONS.items()}, OPTION_PREFIX, problems)
    otel = {**defaults.otel, **_variables(_without_prefix(OTEL_PREFIX, annotations), problems, OTEL_PREFIX)}
    problems += _missing_annotations(texts)
    problems += _unused_annotations(annotations, texts)
    if problems:
        raise InjectionRefused(tuple(problems))
    memory_bytes = config_of(parsed).upstream.memory_bytes
    of_memory = {
        "request-memory": sizes.request_memory_bytes(memory_bytes),
        "max-connections": sizes.max_connections(memory_bytes),
    }
    settings |= {name: _OPTIONS[name].kind.show(value) for name, value in of_memory.items() if name not in parsed}
    config = config_of({**of_memory, **parsed})
    problems += find_contradictions(config)
    if problems:
        raise InjectionRefused(tuple(problems))
    return InjectionRequest(
        image=values["image"],
        mode=values["mode"],
        is_native=values["native"],
        env=values.get("env", ()),
        containers=values.get("containers"),
        secret=values.get("secret"),
        memory=values.get("memory"),
        cpu_request=values["cpu-request"],
        redirect_ports=values["redirect-ports"],
        redirect_networks=values.get("redirect-networks"),
        settings=settings,
        otel={name: text for name, text in otel.items() if text},
        config=config,
    )


def _annotation_texts(annotations: Mapping[str, Any], defaults: Defaults, problems: list[str]) -> dict[str, str]:
    """Return the values of annotations by name, none of them empty; add to *problems*."""
    own = {name: text for name, text in _without_prefix(PREFIX, annotations).items() if PREFIX + name != STATUS}
    given = {**defaults.annotations, **_texts(own, _BY_NAME.keys(), problems, PREFIX)}
    builtin = {each.name: each.default for each in ANNOTATIONS if each.default}
    return {**builtin, **{name: text for name, text in given.items() if text}}


def _option_texts(annotations: Mapping[str, Any], defaults: Defaults, problems: list[str]) -> dict[str, str]:
    """Return the values of options by name, none of them empty; add to *problems*."""
    own = _without_prefix(OPTION_PREFIX, annotations)
    problems += [
        f"{OPTION_PREFIX}{name}: has an annotation of its own; give {PREFIX}{_OURS[name]}"
        for name in own
        if name in _OURS
    ]
    own = {name: text for name, text in own.items() if name not in _OURS}
    given = {**defaults.options, **_texts(own, _OPTIONS.keys() - _OURS.keys(), problems, OPTION_PREFIX)}
    return {"admin-listen": _ADMIN_LISTEN, **{name: text for name, text in given.items() if text}}


def _without_prefix(prefix: str, annotations: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix(prefix): text for key, text in annotations.items() if str(key).startswith(prefix)}


def _missing_annotations(texts: Mapping[str, str]) -> Iterator[str]:
    if not texts.get("bootstrap-servers"):
        yield f"{PREFIX}bootstrap-servers: not given; accepted: {ADDRESSES.accepts}, the brokers to ask first"
    if not texts.get("image"):
        yield f"{PREFIX}image: not given; accepted: Sidefetch's image, here or by the defaults"


def _unused_annotations(annotations: Mapping[str, Any], texts: Mapping[str, str]) -> Iterator[str]:
    """Yield a problem for each annotation of the pod that has no effect."""
    if texts.get("mode") == "address":
        for name in ("redirect-ports", "redirect-networks"):
            if PREFIX + name in annotations:
                yield f"{PREFIX}{name}: of no use with {PREFIX}mode address; give transparent, or leave it out"
    if PREFIX + "containers" in annotations and "env" not in texts:
        yield f"{PREFIX}containers: of no use without {PREFIX}env; name variables there, or leave it out"


def _texts(
    given: Mapping[str, Any], names: Collection[str], problems: list[str], prefix: str = ""
) -> dict[str, str]:
    """Return the texts of *given* whose names are among *names*; add to *problems* for the others.

    Without *prefix* these are defaults, which may also be numbers and booleans.
    """
    texts: dict[str, str] = {}
    for name, value in given.items():
        if name not in names:
            # The search takes 0.3 ms: none for problems that are not reported.
            close = difflib.get_close_matches(name, names, n=1) if len(problems) < MOST_REASONS else ()
            hint = f"did you mean {prefix}{close[0]}?" if close else f"accepted: {', '.join(sorted(names))}"
            problems.append(f"{prefix}{name}: there is no such name; {hint}")
        elif isinstance(value, str):
            texts[name] = value
        elif not prefix and isinstance(value, bool | int | float):
            texts[name] = json.dumps(value)
        else:
            problems.append(f"{prefix}{name}: {_shown(value)} is no text; put it in quotes")
    return texts


def _variables(given: Mapping[str, Any], problems: list[str], prefix: str) -> dict[str, str]:
    """Return the values of OpenTelemetry's variables by name; add to *problems*."""
    problems += [
        f"{prefix}{name}: no variable of OpenTelemetry; accepted: OTEL_..., as OTEL_EXPORTER_OTLP_ENDPOINT"
        for name in given
        if _OTEL.fullmatch(name) is None
    ]
    return _texts(given, given, problems, prefix)


def _shown(value: object) -> str:
    """Return *value* as text for a message, about as a manifest has it: YAML's dates are not JSON."""
    return json.dumps(value, default=str)


def _parsed(
    texts: Mapping[str, str], kinds: Mapping[str, OptionType], prefix: str, problems: list[str]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            values[name] = kinds[name].parse(text)
        except ValueError:
            problems.append(f"{prefix}{name}: {text!r}; accepted: {kinds[name].accepts}")
    return values


def markdown_table() -> str:
    """Return the Markdown table for ``helm/README.md`` of all annotations, with default, meaning and values."""
    rows = ["| annotation | default | meaning |", "|---|---|---|"]
    for each in ANNOTATIONS:
        default = f"`{each.default}`" if each.default else "none"
        rows.append(f"| `{PREFIX}{each.name}` | {default} | {each.meaning} Accepted: {each.kind.accepts}. |")
    return "\n".join(rows) + "\n"
