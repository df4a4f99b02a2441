"""The modules that a start does not import; the benchmark measures its time."""

import subprocess
import sys

_PROGRAM = """
import os, sys
sys.modules["hypothesis"] = None  # kio imports it where it is, which is in tests alone
import trio
from proxy.cli.options import settings_of
from proxy.cli.run import add_to
from proxy.cli import parser
from proxy.net.app import Proxy
from proxy.net.io.logs import Log
from proxy.net.rack import find_rack

config = settings_of(parser(["run"]).parse_args(["run", "--bootstrap-servers", "127.0.0.1:1"])).config
found = trio.run(find_rack, config.routing, {})
Proxy(config, Log(config.log.format, config.log.level, sys.stderr), rack=found.rack)
print(*sys.modules)
"""
_LATER = {
    "crc32c": "records are converted",
    "email": "the package's own metadata is read, or HTTP",
    "h11": "there is an admin port",
    "http.client": "Kubernetes is asked for the rack",
    "importlib.metadata": "a package is asked for its version",
    "opentelemetry": "traces are exported",
    "prometheus_client": "metrics are asked for",
    "proxy.cli.check": "it is the command",
    "proxy.convert.versions.entities": "a request is upgraded",
    "proxy.kube": "pods are injected",
    "tomllib": "there is a file of settings",
}
"""Modules that are imported on demand, and the occasion."""


def test_a_start_imports_nothing_that_most_sidecars_need_later_or_never() -> None:
    reported = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True).stdout

    assert {"trio", "proxy.net.app"} < {*reported.split()}
    assert _LATER.keys().isdisjoint(reported.split())
