"""``sidefetch redirect``: install or remove packet filter rules that redirect connections to Sidefetch."""

import argparse
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

from proxy.cli.options import Commands
from proxy.errors import ConfigError

__all__ = ["add_to"]

_Value = TypeVar("_Value")

_TIMEOUT_S: Final = 30.0
_REMEDIES: Final = {
    "Operation not permitted": "nft needs the capability NET_ADMIN, and usually root: in a pod, add it to an init"
    " container's securityContext.capabilities.add",
    "Operation not supported": "the kernel needs nf_tables with NAT: nft_chain_nat and nft_redir",
    "No such file or directory": "the kernel needs nf_tables with NAT: nft_chain_nat and nft_redir",
    "Protocol not supported": "the kernel needs nf_tables (Linux 5.2 or newer)",
}
"""The remedies by a part of the error message."""


def add_to(commands: Commands) -> None:
    """Add the subcommand ``redirect`` with its actions and their flags to *commands*, the subparsers of argparse.

    It sets ``run`` in the parsed arguments to the function that executes the command and returns the exit code.
    """
    from proxy.kube.redirect import DEFAULT_PORTS, LISTEN_PORT, SPARED_UIDS

    parser = commands.add_parser(
        "redirect",
        help="redirect connections to brokers to Sidefetch (transparent mode)",
        description="Install rules in the packet filter (nftables) of this host, or pod, that redirect connections"
        " to brokers to Sidefetch, or remove the rules. Needs nft and the capability NET_ADMIN. Both actions may be"
        " repeated; existing connections are not changed.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    install = actions.add_parser("install", help="install or replace the rules", allow_abbrev=False)
    ports = ",".join(f"{first}-{last}" for first, last in DEFAULT_PORTS)
    uids = ",".join(map(str, SPARED_UIDS))
    install.add_argument(
        "--ports", metavar="FIRST-LAST,...", default=ports, help="ports of the brokers [default: %(default)s]"
    )
    install.add_argument("--networks", metavar="CIDR,...", help="networks of the brokers [default: all]")
    install.add_argument(
        "--uid",
        metavar="ID,...",
        default=uids,
        help="users whose connections are not redirected: Sidefetch's own, and those of a service mesh's proxy"
        " [default: %(default)s: Sidefetch's image, Istio, Linkerd]",
    )
    install.add_argument(
        "--to", metavar="PORT", default=str(LISTEN_PORT), help="port of --transparent [default: %(default)s]"
    )
    install.set_defaults(run=_install)
    remove = actions.add_parser("remove", help="remove the rules", allow_abbrev=False)
    remove.set_defaults(run=_remove)
    for action in (install, remove):
        action.add_argument("--dry-run", action="store_true", help="print the input for nft, and change nothing")


def _install(arguments: argparse.Namespace) -> int:
    from proxy.kube.redirect import Rules, parse_networks, parse_ports, parse_uids

    to = _parsed("to", arguments.to, parse_ports, "a port, 1 to 65535")
    if len(to) != 1 or to[0][0] != to[0][1]:
        raise ConfigError(f"to: {arguments.to!r}; accepted: one port")
    networks = "CIDR[,CIDR...], such as 10.0.0.0/8,fd00::/8"
    rules = Rules(
        _parsed("ports", arguments.ports, parse_ports, "PORT or FIRST-LAST, several with commas"),
        () if arguments.networks is None else _parsed("networks", arguments.networks, parse_networks, networks),
        _parsed("uid", arguments.uid, parse_uids, "user ids as numbers, several with commas"),
        to[0][0],
    )
    return _carry_out(rules.script(), arguments)


def _remove(arguments: argparse.Namespace) -> int:
    from proxy.kube.redirect import REMOVE

    return _carry_out(REMOVE, arguments)


def _parsed(name: str, text: str, parse: Callable[[str], _Value], accepts: str) -> _Value:
    try:
        return parse(text)
    except ValueError as wrong:
        raise ConfigError(f"{name}: {wrong}; accepted: {accepts}") from None


def _carry_out(script: str, arguments: argparse.Namespace) -> int:
    """Run nft with *script*, or print it for ``--dry-run``; return the exit code."""
    if arguments.dry_run:
        print(script, end="")
        return 0
    try:
        done: Any = subprocess.run(
            ["nft", "-f", "-"],  # noqa: S607 - found on the PATH, because distributions differ
            input=script,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        print("sidefetch: there is no nft on the PATH: install nftables", file=sys.stderr)
        return 1
    except subprocess.TimeoutExpired:
        print(f"sidefetch: nft did not end within {_TIMEOUT_S:g} s", file=sys.stderr)
        return 1
    if done.returncode == 0:
        return 0
    message = " ".join(done.stderr.split())
    remedy = next((remedy for sign, remedy in _REMEDIES.items() if sign in message), None)
    print(f"sidefetch: nft: {message}" + (f"; {remedy}" if remedy else ""), file=sys.stderr)
    return 1
