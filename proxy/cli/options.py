"""The options as command line flags with help, and as the tables of ``proxy/config/OPTIONS.md``."""

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from proxy.cli.settings import FILE_ENV, Settings, load_settings
from proxy.config import FILE, OPTIONS, Option
from proxy.errors import ConfigError

__all__ = ["Commands", "add_flags", "markdown_table", "settings_of"]

Commands = Any
"""The type of the result of ``add_subparsers``, for which argparse has no public name."""

_TITLES: Final = {
    "upstream": "towards the brokers",
    "downstream": "towards the clients",
    "upstream_security": "TLS and SASL towards the brokers",
    "downstream_security": "TLS and SASL towards the clients",
    "limits": "limits on clients",
    "routing": "reads from the closest replica",
    "conversion": "conversion of records that clients cannot read",
    "log": "logs",
    "admin": "probes, metrics and the status page",
    "telemetry": "traces",
    "ledger": "the ledger",
    "": "bypass, verification and shutdown",
}
_METAVARS: Final = {
    "bootstrap-servers": "HOST:PORT,...",
    "listen": "HOST:PORT,...",
    "broker-ports": "FIRST-LAST",
    "share-ports": "SWITCH",
    "advertise": "HOST",
    "transparent": "HOST:PORT,...",
    "max-frame": "SIZE",
    "memory": "SIZE",
    "fetch-buffer": "SIZE",
    "read-ahead": "SWITCH",
    "share-reads": "WHO",
    "share-reads-except": "RULE,...",
    "client-sessions": "NUMBER",
    "allowed-apis": "API,...",
    "max-connections": "NUMBER",
    "max-connections-per-peer": "NUMBER",
    "max-handshakes": "NUMBER",
    "max-in-flight": "NUMBER",
    "max-fetch-partitions": "NUMBER",
    "request-memory": "SIZE",
    "rack": "NAME",
    "rack-from": "SOURCE,...",
    "replica-selector": "SELECTOR",
    "down-conversion": "SWITCH,...",
    "isolation": "LEVEL",
    "zstd": "CODEC",
    "lz4-magic0": "CODEC",
    "convert-chunk": "SIZE",
    "log-format": "FORMAT",
    "log-level": "LEVEL",
    "admin-listen": "HOST:PORT",
    "admin-open": "SWITCH",
    "ready-requires-broker": "SWITCH",
    "traces": "MODE",
    "ledger": "FOLDER",
    "ledger-topic": "TOPIC",
    "ledger-sample": "SHARE",
    "ledger-file": "SIZE",
    "ledger-max-size": "SIZE",
    "ledger-memory": "SIZE",
    "bypass": "RULE,...",
    "verify": "SHARE",
    "upstream-tls": "SWITCH",
    "upstream-tls-verify-host": "SWITCH",
    "upstream-sasl": "MECHANISM",
    "upstream-sasl-token-url": "URL",
    "upstream-sasl-scope": "SCOPE",
    "insecure-listen": "SWITCH",
}


def add_flags(parser: argparse.ArgumentParser, sections: Iterable[str] = tuple(_TITLES)) -> None:
    """Add a flag with its help for each option of Sidefetch to *parser*, and ``--config``.

    Args: sections: the sections of ``Config`` whose options get a flag, each as a group; by default all.
    """
    groups = {section: parser.add_argument_group(_TITLES[section]) for section in sections}
    for option in OPTIONS:
        if option.section not in groups:
            continue
        metavar = "FILE" if option.kind is FILE else _METAVARS.get(option.name, "TIME")
        groups[option.section].add_argument(option.flag, metavar=metavar, dest=_dest(option), help=_help(option))
    parser.add_argument("--config", metavar="FILE", help=f"a TOML file with options [also: {FILE_ENV}]")


def settings_of(arguments: argparse.Namespace) -> Settings:
    """Return the settings from the parsed flags, the environment, and the TOML file that ``--config`` names.

    Without ``--config``, the variable ``SIDEFETCH_CONFIG`` may name the file.

    Raises: ConfigError: options are wrong or missing, or the file cannot be read; one argument for each problem.
    """
    given = {option.name: getattr(arguments, _dest(option), None) for option in OPTIONS}
    flags = {name: text for name, text in given.items() if text is not None}
    path: str = arguments.config or os.environ.get(FILE_ENV, "")
    unread: list[str] = []
    toml = ""
    if path:
        try:
            toml = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            whence = "flag --config" if arguments.config else f"environment {FILE_ENV}"
            unread = [f"config: {path!r} from {whence}: {error}; accepted: a TOML file"]
    try:
        settings = load_settings(flags=flags, environ=os.environ, toml=toml, toml_name=path)
    except ConfigError as error:
        raise ConfigError(*unread, *error.args) from None
    if unread:
        raise ConfigError(*unread)
    return settings


def markdown_table() -> str:
    """Return the Markdown tables of ``proxy/config/OPTIONS.md``, which describe all options, one for each group."""
    parts = []
    for section, title in _TITLES.items():
        options = [option for option in OPTIONS if option.section == section]
        rows = [
            f"### {title[0].upper()}{title[1:]}\n",
            "| flag | environment | in the file | default | meaning, and the reason for the default |",
            "|---|---|---|---|---|",
        ]
        rows += [
            f"| `{o.flag}` | `{o.env}` | `{o.key}` | {_default(o)}"
            f" | {o.meaning} Accepted: {o.kind.accepts}. {o.reason} |"
            for o in options
        ]
        parts.append("\n".join(rows) + "\n")
    return "\n" + "\n".join(parts) + "\n"


def _default(option: Option) -> str:
    if option.required:
        return "required"
    return f"`{option.default_text}`" if option.default_text else "none"


def _dest(option: Option) -> str:
    return "option_" + option.name.replace("-", "_")


def _help(option: Option) -> str:
    default = "required" if option.required else f"default: {option.default_text or 'none'}"
    text = f"{option.meaning} Accepted: {option.kind.accepts}. {option.reason} [{default}; also: {option.env}]"
    return text.replace("%", "%%")
