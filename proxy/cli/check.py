"""``sidefetch check``: print the settings and the cluster, and judge whether Sidefetch can serve it."""

import argparse
import os
from collections.abc import Iterator, Sequence
from functools import partial

from proxy.cli import security
from proxy.cli.cluster_info import BrokerInfo, ClusterInfo, Diagnostic
from proxy.cli.diagnostics import can_serve, diagnose, kafka_release
from proxy.cli.options import Commands, add_flags, settings_of
from proxy.cli.printable import printable
from proxy.cli.settings import Settings
from proxy.config import OPTIONS, Config
from proxy.config.rack import RackFound

__all__ = ["add_to", "cluster_report", "greeting_report", "settings_report"]


def add_to(commands: Commands) -> None:
    """Add the subcommand ``check`` with its flags to *commands*, the subparsers of argparse.

    It sets ``run`` in the parsed arguments to the function that executes the command and returns the exit code.
    """
    parser = commands.add_parser(
        "check",
        help="check the settings and the cluster before a run",
        description="Print the effective settings with the source of each, connect to every broker, and print which"
        " features will work. Takes the options of run, opens no listener and changes nothing. Exit code 0: clients"
        " can be served; 1: they cannot; 2: the settings are wrong.",
        usage="sidefetch check [OPTIONS]",
        allow_abbrev=False,
    )
    add_flags(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    print(settings_report(settings), flush=True)
    import trio

    if settings.config.upstream_security.sasl == "client":
        servers = trio.run(_read_versions, settings.config)
        print(greeting_report(servers, list(security.diagnose_security(settings.config))))
        return 0 if any(not server.problem for server in servers) else 1
    seen, rack = trio.run(_probe_cluster, settings.config)
    if isinstance(seen, ClusterInfo):
        found = diagnose(seen, settings.config, rack)
        print(cluster_report(seen, found))
        return 0 if can_serve(found) else 1
    print("\n".join(["No bootstrap server answers", *(f"  {line}" for line in seen)]))
    return 1


async def _probe_cluster(config: Config) -> tuple[ClusterInfo | list[str], RackFound]:
    from proxy.cli.probe import probe_cluster
    from proxy.net.rack import find_rack
    from proxy.net.upstream.access import access_of
    from proxy.net.upstream.brokers import dial

    as_we_are = partial(dial, access=access_of(config.upstream_security))
    return await probe_cluster(config.upstream, as_we_are), await find_rack(config.routing, os.environ)


async def _read_versions(config: Config) -> list[BrokerInfo]:
    """Return the bootstrap servers and the API versions that they report without a login."""
    from proxy.cli.probe import read_api_versions
    from proxy.net.upstream.access import access_of
    from proxy.net.upstream.brokers import dial

    return await read_api_versions(config.upstream, partial(dial, access=access_of(config.upstream_security)))


def greeting_report(servers: Sequence[BrokerInfo], found: list[Diagnostic]) -> str:
    """Return the output of ``check`` for ``--upstream-sasl client``, after the settings.

    Sidefetch has no login then, so it cannot query the cluster: the output has the bootstrap *servers*, the
    diagnostics *found*, and whether at least one server was reached.
    """
    rows = [
        (str(server.address), server.problem or f"reached, looks like {kafka_release(server.versions)}")
        for server in servers
    ]
    reached = any(not server.problem for server in servers)
    verdict_text = (
        "can reach this cluster, for clients whose logins the brokers accept"
        if reached
        else "cannot reach this cluster"
    )
    return "\n".join(
        [
            "Bootstrap servers",
            *_columns(rows),
            "Findings",
            *_columns([(finding.level, finding.text) for finding in found]),
            f"Sidefetch {verdict_text}.",
        ]
    )


def settings_report(settings: Settings) -> str:
    """Return a text table of all options: the name, the effective value, and the source of the value."""
    rows = [
        (option.name, option.kind.show(option.value_in(settings.config)) or "-", str(settings.layers[option.name]))
        for option in OPTIONS
    ]
    return "\n".join(["Settings", *_columns(rows)])


def cluster_report(seen: ClusterInfo, found: list[Diagnostic]) -> str:
    """Return the output of ``check`` about a cluster, after the settings.

    It has the brokers in *seen*, the diagnostics *found*, and whether Sidefetch can serve the cluster.
    """
    brokers = [
        (
            f"node {broker.node}",
            str(broker.address),
            f"rack {broker.rack}" if broker.rack else "no rack",
            f"Fetch v{broker.versions[1][0]}-{broker.fetch}" if broker.fetch >= 0 else "Fetch unknown",
            f"looks like {kafka_release(broker.versions)}" if broker.versions else "not reached",
        )
        for broker in sorted(seen.brokers, key=lambda broker: broker.node)
    ]
    verdict_text = "can serve this cluster" if can_serve(found) else "cannot serve all of this cluster"
    return "\n".join(
        [
            f"Cluster {seen.cluster_id or 'without an id'}, by way of {seen.through}",
            *_columns(brokers),
            "Findings",
            *_columns([(finding.level, finding.text) for finding in found]),
            f"Sidefetch {verdict_text}.",
        ]
    )


def _columns(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{printable(cell):{width}}" for cell, width in zip(row, widths, strict=True))
        yield "  " + "  ".join(cells).rstrip()
