"""The child processes of the demo: a reading client, and Sidefetch as its users run it."""

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from proxy.config import ENV_PREFIX, UpstreamSecurity
from proxy.demo.client import connect
from proxy.demo.costs import FetchCost
from proxy.errors import ProxyError

__all__ = ["DemoFailed", "ReaderProcess", "find_free_ports", "reader", "run_program", "sidefetch"]

_START_S: Final = 20.0
_END_S: Final = 5.0
_BROKER_PORTS: Final = 16


class DemoFailed(ProxyError):
    """An error that ends the demonstration; its text gives the reason to users."""


@asynccontextmanager
async def run_program(
    command: Sequence[str],
    *,
    log: Path,
    stdout: int | None = None,
    env: Mapping[str, str] | None = None,
    kill: bool = False,
) -> AsyncIterator[trio.Process]:
    """Return an async context manager that runs *command* as a child process until the context ends.

    Then it gets SIGTERM, and SIGKILL if it has not ended after 5 s; with *kill*, SIGKILL at once. If it ends
    earlier, with any exit code, the context goes on.

    Args:  log: the file that gets its stderr.
           stdout: as for ``subprocess.Popen``; None: the file *log*.
           env: its environment; None: that of this process.
    """
    with log.open("wb") as file:
        run = partial(
            trio.run_process,
            command,
            stdin=subprocess.DEVNULL,
            stdout=file if stdout is None else stdout,
            stderr=file,
            check=False,
            env=env,
            # Ctrl-C goes to the whole foreground group; this context must end these programs itself.
            start_new_session=True,
        )
        async with trio.open_nursery() as nursery:
            process: trio.Process = await nursery.start(run)
            try:
                yield process
            finally:
                with suppress(OSError):
                    process.kill() if kill else process.terminate()
                with trio.move_on_after(_END_S, shield=True):
                    await process.wait()
                process.kill()
                nursery.cancel_scope.cancel()


@attrs.define
class ReaderProcess:
    """The latest report of a reading client, updated while it runs: counts of its records, fetches and bytes."""

    records: int = 0
    fetches: int = 0
    named: int = 0
    request_bytes: int = 0
    response_bytes: int = 0

    @property
    def cost(self) -> FetchCost:
        """The cost of the client's fetches so far, as it counts them itself; without the racks of the records."""
        return FetchCost(self.fetches, self.named, self.request_bytes, self.response_bytes)


@asynccontextmanager
async def reader(
    bootstrap: str, topic: str, partitions: int, security: UpstreamSecurity | None = None
) -> AsyncIterator[ReaderProcess]:
    """Return an async context manager that runs a client, as a child process, which reads a topic from its end.

    The context begins once the client's first fetch has been answered; its value is updated with each report of the
    client.

    Args:   bootstrap: the bootstrap servers, ``host:port,host:port…``.
            partitions: the number of partitions to read, from 0 on.
            security: TLS and login of the cluster; None for plaintext.
    Raises: DemoFailed: the client ended, or got no response within 20 s.
    """
    command = [sys.executable, "-m", "proxy.demo.reader", "--bootstrap-servers", bootstrap, "--topic", topic]
    command += ["--partitions", str(partitions)]
    if security is not None:
        command += ["--security", json.dumps(attrs.asdict(security))]
    with tempfile.TemporaryDirectory(prefix="sidefetch-demo-") as folder:
        log = Path(folder) / "reader.log"
        async with run_program(command, log=log, stdout=subprocess.PIPE) as process, trio.open_nursery() as nursery:
            heard = ReaderProcess()
            ready = trio.Event()
            nursery.start_soon(_listen, process, heard, ready, log)
            with trio.move_on_after(_START_S) as timeout:
                await ready.wait()
            if timeout.cancelled_caught:
                raise DemoFailed(f"the reader got no response within {_START_S:g} s\n{_tail(log)}".rstrip())
            yield heard
            nursery.cancel_scope.cancel()


async def _listen(process: trio.Process, heard: ReaderProcess, ready: trio.Event, log: Path) -> None:
    assert process.stdout is not None
    buffer = b""
    async for chunk in process.stdout:
        *lines, buffer = (buffer + chunk).split(b"\n")
        for line in lines:
            for name, value in json.loads(line).items():
                setattr(heard, name, value)
        if heard.fetches:
            ready.set()
    await process.wait()
    raise DemoFailed(f"the reader ended with exit code {process.returncode}\n{_tail(log)}".rstrip())


@asynccontextmanager
async def sidefetch(bootstrap: str, *options: str) -> AsyncIterator[str]:
    """Return an async context manager that runs ``sidefetch run`` as a child process, in front of a cluster.

    Its value is Sidefetch's ``host:port`` for clients, which is on loopback. The context begins once Sidefetch
    answers there.

    Args:   bootstrap: the cluster's bootstrap servers, ``host:port,host:port…``.
            options: more arguments for the command line.
    Raises: DemoFailed: Sidefetch ended, or did not answer within 20 s.
    """
    port = find_free_ports(1 + _BROKER_PORTS)
    address = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "proxy", "run", "--bootstrap-servers", bootstrap, "--listen", address]
    command += ["--broker-ports", f"{port + 1}-{port + _BROKER_PORTS}", "--grace", "1", *options]
    env = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    with tempfile.TemporaryDirectory(prefix="sidefetch-demo-") as folder:
        log = Path(folder) / "sidefetch.log"
        async with run_program(command, log=log, env=env) as process:
            up = False
            with trio.move_on_after(_START_S):
                while process.poll() is None and not (up := await is_serving(address)):
                    await trio.sleep(0.05)
            if not up:
                raise DemoFailed(f"Sidefetch does not serve\n{_tail(log)}".rstrip())
            yield address


async def is_serving(address: str) -> bool:
    """Return whether a broker at *address* (``host:port``) answers a Metadata request with at least one broker."""
    try:
        async with connect(address, timeout_s=2) as connection:
            return bool((await connection.call("metadata", 4, {"topics": []})).brokers)
    except OSError:
        return False


def find_free_ports(count: int) -> int:
    """Return the first of *count* consecutive loopback ports, from 20000 to 30000, that are free at the moment.

    They are not reserved.

    Raises: DemoFailed: none were found.
    """
    for _ in range(200):
        first = random.randint(20_000, 30_000 - count)
        with suppress(OSError):
            for port in range(first, first + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return first
    raise DemoFailed(f"no {count} free ports in a row between 20000 and 30000")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-8:])
