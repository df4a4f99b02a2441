"""Every setting by all of its names, made from the model."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from proxy.config.model import SECTIONS, Config
from proxy.config.option_types import OptionType

__all__ = ["ENV_PREFIX", "OPTIONS", "Option", "config_of", "option_named"]

ENV_PREFIX: Final = "SIDEFETCH_"


@attrs.frozen
class Option:
    """One setting, by all of its names."""

    name: str
    section: str
    """``""`` for the top level. What follows an underscore is not in the file: two sections share a table."""
    field: str
    kind: OptionType
    default: object
    """``attrs.NOTHING`` where it must be given."""
    meaning: str
    reason: str
    """Why the default is what it is."""

    @property
    def flag(self) -> str:
        return f"--{self.name}"

    @property
    def env(self) -> str:
        return ENV_PREFIX + self.name.upper().replace("-", "_")

    @property
    def key(self) -> str:
        """In the file, dotted: ``log.format``."""
        table, _, _ = self.section.partition("_")
        return f"{table}.{self.name.removeprefix(table + '-')}" if table else self.name

    @property
    def required(self) -> bool:
        return self.default is attrs.NOTHING

    @property
    def default_text(self) -> str:
        return "" if self.required else self.kind.show(self.default)

    def of(self, config: Config) -> object:
        """Its value in *config*."""
        return getattr(getattr(config, self.section) if self.section else config, self.field)


def _options() -> Iterator[Option]:
    models: dict[str, type[attrs.AttrsInstance]] = {**SECTIONS, "": Config}
    for section, model in models.items():
        for field in attrs.fields(model):
            if field.metadata:
                yield Option(section=section, field=field.name, default=field.default, **field.metadata)


OPTIONS: Final = tuple(_options())


def option_named(name: str) -> Option:
    """The one that is called so."""
    return next(option for option in OPTIONS if option.name == name)


def config_of(values: Mapping[str, object]) -> Config:
    """The model with *values*, parsed, by the options' names; all that are required must be among them."""

    def fields_of(section: str) -> dict[str, Any]:
        return {o.field: values[o.name] for o in OPTIONS if o.section == section and o.name in values}

    sections: dict[str, Any] = {name: model(**fields_of(name)) for name, model in SECTIONS.items()}
    return Config(**sections, **fields_of(""))
