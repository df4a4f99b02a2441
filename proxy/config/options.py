"""The list of all options, made from the metadata of the settings' fields."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from proxy.config.model import SECTIONS, Config
from proxy.config.option_types import OptionType

__all__ = ["ENV_PREFIX", "OPTIONS", "Option", "config_of", "option_named"]

ENV_PREFIX: Final = "SIDEFETCH_"
"""The first part of the name of every environment variable of Sidefetch."""


@attrs.frozen
class Option:
    """One option: its names, its type, its default and its description."""

    name: str
    """The name in messages, and the flag without its dashes."""
    section: str
    """The section of the model; ``""`` for the top level. In the file, sections with the same part before an
    underscore share a table."""
    field: str
    """The name of the field in the section."""
    kind: OptionType
    default: object
    """The default value; ``attrs.NOTHING`` if the option is required."""
    meaning: str
    """The description, for people."""
    reason: str
    """The reason for the default."""

    @property
    def flag(self) -> str:
        """The command line flag of the option, such as ``--log-format``."""
        return f"--{self.name}"

    @property
    def env(self) -> str:
        """The environment variable of the option, such as ``SIDEFETCH_LOG_FORMAT``."""
        return ENV_PREFIX + self.name.upper().replace("-", "_")

    @property
    def key(self) -> str:
        """The dotted key of the option in the TOML file, such as ``log.format``."""
        table, _, _ = self.section.partition("_")
        return f"{table}.{self.name.removeprefix(table + '-')}" if table else self.name

    @property
    def required(self) -> bool:
        """Whether the option has no default, so that it must be given."""
        return self.default is attrs.NOTHING

    @property
    def default_text(self) -> str:
        """The default as it would be written after the flag; empty if there is none."""
        return "" if self.required else self.kind.show(self.default)

    def value_in(self, config: Config) -> object:
        """Return the value that this option has in *config*."""
        return getattr(getattr(config, self.section) if self.section else config, self.field)


def _options() -> Iterator[Option]:
    models: dict[str, type[attrs.AttrsInstance]] = {**SECTIONS, "": Config}
    for section, model in models.items():
        for field in attrs.fields(model):
            if field.metadata:
                yield Option(section=section, field=field.name, default=field.default, **field.metadata)


OPTIONS: Final = tuple(_options())
"""All options, in the order of the sections; those of the top level are the last."""


def option_named(name: str) -> Option:
    """Return the option with *name*, the flag without its dashes. Raises: StopIteration: there is none."""
    return next(option for option in OPTIONS if option.name == name)


def config_of(values: Mapping[str, object]) -> Config:
    """Return the settings with *values*, and the defaults of all other options.

    Args: values: the parsed values by the name of the option; they must include all required options.
    """

    def fields_of(section: str) -> dict[str, Any]:
        return {o.field: values[o.name] for o in OPTIONS if o.section == section and o.name in values}

    sections: dict[str, Any] = {name: model(**fields_of(name)) for name, model in SECTIONS.items()}
    return Config(**sections, **fields_of(""))
