"""``sidefetch webhook``: add sidecars to new pods, until SIGTERM or Ctrl-C."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any, Final

from proxy.cli.extras import require_kube_extra
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
    """Add the subcommand ``webhook`` with its flags to *commands*, the subparsers of argparse.

    It sets ``run`` in the parsed arguments to the function that executes the command and returns the exit code.
    """
    parser = commands.add_parser(
        "webhook",
        help="add the sidecar to new pods that request it",
        description="Serve the admission requests of the Kubernetes API server, and add the sidecar to each new pod"
        " that requests it by its annotations, until SIGTERM or Ctrl-C.",
        usage="sidefetch webhook (--certificate-dir DIR | --self-signed --secret NAME --webhook-configuration NAME)"
        " [OPTIONS]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", default=_LISTEN, help=f"address for the API server [default: {_LISTEN}]"
    )
    parser.add_argument(
        "--defaults", metavar="FILE", help="JSON file with annotations and options for pods without their own"
    )
    parser.add_argument(
        "--certificate-dir", metavar="DIR", help="folder with tls.crt and tls.key, reloaded when they change"
    )
    parser.add_argument(
        "--self-signed", action="store_true", help="create the certificate, keep it in --secret, and renew it"
    )
    parser.add_argument("--secret", metavar="NAME", help="Secret for that certificate, in this pod's namespace")
    parser.add_argument(
        "--webhook-configuration",
        metavar="NAME",
        help="MutatingWebhookConfiguration that gets the CA of the certificate, and has the host names for it",
    )
    parser.add_argument(
        "--certificate-life",
        metavar="TIME",
        default=_LIFE,
        help=f"lifetime of that certificate; it is renewed after two thirds of it [default: {_LIFE}]",
    )
    parser.add_argument(
        "--grace",
        metavar="TIME",
        default=_GRACE,
        help="time after SIGTERM in which it still answers, until all API servers have stopped using it"
        f" [default: {_GRACE}]",
    )
    for option, metavar in ((_LOG_FORMAT, "FORMAT"), (_LOG_LEVEL, "LEVEL")):
        default = option.default_text
        help_text = f"{option.kind.accepts} [default: {default}]"
        parser.add_argument(option.flag, metavar=metavar, default=default, help=help_text)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    with require_kube_extra():
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
        problems.append("certificate-dir: accepted: either certificate-dir or self-signed")
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
        problems.append(
            "self-signed: this process is in no pod of Kubernetes; accepted: in a pod, or certificate-dir"
        )
        return None
    return SelfSigned(api, arguments.secret, arguments.webhook_configuration, life_s)


def _parsed(name: str, text: str, kind: OptionType, problems: list[str]) -> Any:
    try:
        return kind.parse(text)
    except ValueError:
        problems.append(f"{name}: {text!r}; accepted: {kind.accepts}")
        return None
