"""``sidefetch webhook``: put sidecars into pods as they are made, until told to stop."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any, Final

from proxy.cli.extras import needs_kube_extra
from proxy.cli.inject import defaults_of
from proxy.cli.options import Commands
from proxy.config import option_named
from proxy.config.option_types import ADDRESS, OptionType, seconds
from proxy.errors import ConfigError
from proxy.net.io.logs import Log

__all__ = ["add_to"]

_LISTEN: Final = "0.0.0.0:9443"
_LIFE: Final = "2160h"
_GRACE: Final = "5s"
_LOG_FORMAT: Final = option_named("log-format")
_LOG_LEVEL: Final = option_named("log-level")


def add_to(commands: Commands) -> None:
    """Make the command known."""
    parser = commands.add_parser(
        "webhook",
        help="put the sidecar into pods as they are made",
        description="Answer the Kubernetes API server, which asks about each pod that is to be made: those that ask"
        " for the sidecar by their annotations get it. Until SIGTERM or Ctrl-C.",
        usage="sidefetch webhook (--certificate-dir DIR | --self-signed --secret NAME --webhook-configuration NAME)"
        " [OPTIONS]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", default=_LISTEN, help=f"where the API server comes to [default: {_LISTEN}]"
    )
    parser.add_argument(
        "--defaults", metavar="FILE", help="JSON: annotations and options of pods that do not have their own"
    )
    parser.add_argument(
        "--certificate-dir", metavar="DIR", help="a folder with tls.crt and tls.key, read again when they change"
    )
    parser.add_argument(
        "--self-signed", action="store_true", help="make the certificate, keep it in --secret, and renew it"
    )
    parser.add_argument("--secret", metavar="NAME", help="the Secret that it is kept in, in this pod's namespace")
    parser.add_argument(
        "--webhook-configuration",
        metavar="NAME",
        help="the MutatingWebhookConfiguration that is told of the certificate's authority, and names its hosts",
    )
    parser.add_argument(
        "--certificate-life",
        metavar="TIME",
        default=_LIFE,
        help=f"how long such a certificate is good; it is renewed after two thirds of that [default: {_LIFE}]",
    )
    parser.add_argument(
        "--grace",
        metavar="TIME",
        default=_GRACE,
        help="after SIGTERM: how long it still answers, until all API servers know that it goes"
        f" [default: {_GRACE}]",
    )
    for option, metavar in ((_LOG_FORMAT, "FORMAT"), (_LOG_LEVEL, "LEVEL")):
        told = option.default_text
        help_text = f"{option.kind.accepts} [default: {told}]"
        parser.add_argument(option.flag, metavar=metavar, default=told, help=help_text)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    with needs_kube_extra():
        from proxy.kube.annotations import Defaults
        from proxy.kube.webhook import WebhookConfig, serve
    problems: list[str] = []
    listen = _parsed("listen", arguments.listen, ADDRESS, problems)
    grace_s = _parsed("grace", arguments.grace, seconds(0, 300), problems)
    log_format = _parsed("log-format", arguments.log_format, _LOG_FORMAT.kind, problems)
    log_level = _parsed("log-level", arguments.log_level, _LOG_LEVEL.kind, problems)
    certificate = _certificate(arguments, problems)
    try:
        defaults = Defaults.parse(defaults_of(arguments.defaults), arguments.defaults or "defaults")
    except ConfigError as wrong:
        problems += wrong.args
    if problems:
        raise ConfigError(*problems)
    import trio

    log = Log(log_format, log_level, sys.stderr)
    trio.run(serve, WebhookConfig(listen, defaults, certificate, grace_s), log)
    return 0


def _certificate(arguments: argparse.Namespace, problems: list[str]) -> Any:
    from proxy.kube.api import Api
    from proxy.kube.webhook import SelfSigned

    folder: str | None = arguments.certificate_dir
    if (folder is None) == (not arguments.self_signed):
        problems.append("certificate-dir: accepted: either this, or self-signed")
        return None
    if folder is not None:
        return Path(folder)
    life_s = _parsed("certificate-life", arguments.certificate_life, seconds(60, 366 * 86400), problems)
    named = {"secret": arguments.secret, "webhook-configuration": arguments.webhook_configuration}
    problems += [
        f"{flag}: not given; accepted: a name, with self-signed" for flag, name in named.items() if not name
    ]
    api = Api.of_this_pod(os.environ)
    if api is None:
        problems.append("self-signed: this is no pod of Kubernetes; accepted: in one, or certificate-dir")
        return None
    return SelfSigned(api, arguments.secret, arguments.webhook_configuration, life_s)


def _parsed(name: str, text: str, kind: OptionType, problems: list[str]) -> Any:
    try:
        return kind.parse(text)
    except ValueError:
        problems.append(f"{name}: {text!r}; accepted: {kind.accepts}")
        return None
