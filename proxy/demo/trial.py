"""``sidefetch try``: the cost of reading a topic of the user, directly and through Sidefetch, without writing."""

import io
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio
from kio.schema.metadata.v5.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v5.response import MetadataResponse
from kio.schema.types import TopicName

from proxy.config import Address, AdminConfig, Config, DownstreamSecurity, LogConfig, PortRange
from proxy.config.rack import RackFound
from proxy.demo.costs import CostTable, FetchCost, compare_costs, count
from proxy.demo.demo import CLIENT, run_until_signal, watch
from proxy.demo.processes import DemoFailed, find_free_ports, is_serving, reader
from proxy.errors import ErrorCode, ProxyError
from proxy.events import FetchRecord, Record
from proxy.net.app import Proxy
from proxy.net.io.logs import Log
from proxy.net.observability.observers import ConnectionInfo
from proxy.net.rack import find_rack
from proxy.net.upstream.access import access_of
from proxy.net.upstream.brokers import dial
from proxy.relay.traffic import Traffic

__all__ = ["trial"]

_BROKER_PORTS = 64
_START_S = 20.0
_CLIENT_ID = "sidefetch-try"


async def trial(config: Config, *, topic: str, seconds: float) -> int:
    """Read *topic* from its end, first directly and then through Sidefetch, and print the cost of both to stdout.

    It joins no consumer group. Sidefetch runs in this process, on free loopback ports.

    Args:    config: the cluster, its security and the routing; its listening addresses, clients' security, and
                 admin and log settings are replaced.
             seconds: the time of reading, half of it for each way.
    Returns: the exit code: 0; 1 after an error, which is written to stderr; 128 plus its number after a signal.
    """
    return await run_until_signal(partial(_trial, config, topic, seconds))


async def _trial(config: Config, topic: str, seconds: float) -> int:
    bootstrap = ",".join(map(str, config.upstream.bootstrap_servers))
    partitions = await _count_partitions(config, topic)
    table = CostTable()
    table.write_text(
        f"Topic {topic}: {count(partitions)} partition{'s' * (partitions != 1)}. Reading only, from the end, in no"
        f" group.\n"
        f"The reader is {CLIENT}, which names every partition in every fetch. It reads for"
        f" {seconds / 2:.0f} s each way.\n"
        f"Counted where the bytes to the brokers leave this machine, fetches only:\n"
    )
    table.write_head()
    async with reader(bootstrap, topic, partitions, config.upstream_security) as heard:
        direct = await watch("directly", heard, lambda: heard.cost, seconds / 2, table)
    bill, rack = _UpstreamCost(), await find_rack(config.routing, os.environ)
    async with (
        _sidefetch(config, bill, rack.rack) as (address, traffic),
        reader(address, topic, partitions) as heard,
    ):
        through = await watch("through Sidefetch", heard, lambda: bill.cost, seconds / 2, table)
    table.write_text("")
    table.write_text(compare_costs(direct, through))
    if through.records:
        table.write_text(_closest(rack, traffic))
    if not (direct.records or through.records):
        table.write_text("No records came in either time: the comparison shows the cost of waiting for records.")
    return 0


def _closest(found: RackFound, traffic: Traffic) -> str:
    """Return a sentence on the racks of the records that were read through Sidefetch."""
    if found.rack is None:
        why = (
            f"the rack was {found.how}" if found.how else "which rack this is in is not known; see sidefetch check"
        )
        return f"Leaders were read both ways ({why})."
    share = 100 * traffic.total(lambda source: source.crossed is False) // max(1, traffic.total())
    return f"{share} % of the bytes of records came from rack {found.rack}, where this is (by {found.how})."


async def _count_partitions(config: Config, topic: str) -> int:
    """Return the number of the topic's partitions.

    Raises: DemoFailed: no broker answers, or the topic does not exist or cannot be read now.
    """
    request = MetadataRequest(
        topics=(MetadataRequestTopic(name=TopicName(topic)),), allow_auto_topic_creation=False
    )
    (found,) = (await _send_request(config, request)).topics
    if found.error_code:
        if found.error_code == ErrorCode.unknown_topic_or_partition:
            raise DemoFailed(f"the cluster has no topic {topic!r}")
        raise DemoFailed(f"topic {topic!r}: the brokers say {found.error_code.name}")
    leaderless = sum(bool(partition.error_code) for partition in found.partitions)
    if leaderless:
        raise DemoFailed(f"topic {topic!r}: {leaderless} of {len(found.partitions)} partitions have no leader")
    return len(found.partitions)


async def _send_request(config: Config, request: MetadataRequest) -> MetadataResponse:
    """Return the response of the first broker that answers. Raises: DemoFailed: none does."""
    access, timeout_s = access_of(config.upstream_security), config.upstream.connect_timeout_s
    problems = []
    for address in config.upstream.bootstrap_servers:
        try:
            with trio.fail_after(timeout_s):
                async with dial(address, client_id=_CLIENT_ID, access=access) as connection:
                    response: MetadataResponse = await connection.send_request(request)
                    return response
        except (ProxyError, OSError) as wrong:
            problems.append(str(wrong))
        except trio.TooSlowError:
            problems.append(f"{address}: no answer within {timeout_s:g} s")
    raise DemoFailed(f"no broker answers: {'; '.join(problems)}")


@attrs.define
class _UpstreamCost:
    """An observer of Sidefetch's events that adds up the cost of its fetches to brokers."""

    cost: FetchCost = attrs.field(factory=FetchCost)
    wants_exchanges: bool = False

    def observe(self, _: ConnectionInfo, record: Record, /) -> None:
        if isinstance(record, FetchRecord):
            so_far = self.cost
            self.cost = FetchCost(
                so_far.fetches + 1,
                so_far.named + record.named,
                so_far.to_brokers + record.request_bytes,
                so_far.from_brokers + record.response_bytes,
            )

    def end_connection(self, _: ConnectionInfo, /) -> None:
        """Do nothing: the fetches of the connection are counted already."""


@asynccontextmanager
async def _sidefetch(config: Config, bill: _UpstreamCost, rack: str | None) -> AsyncIterator[tuple[str, Traffic]]:
    """Run Sidefetch in this process, on ports of its own; print its log only if it fails.

    Yields: the address to read through, and Sidefetch's traffic counters.
    """
    port = find_free_ports(1 + _BROKER_PORTS)
    address = f"127.0.0.1:{port}"
    downstream = attrs.evolve(
        config.downstream,
        listen=(Address("127.0.0.1", port),),
        broker_ports=PortRange(port + 1, port + _BROKER_PORTS),
        advertise=None,
    )
    said = io.StringIO()
    ours = attrs.evolve(
        config,
        downstream=downstream,
        downstream_security=DownstreamSecurity(),
        admin=AdminConfig(),
        log=LogConfig(),
        grace_s=1.0,
    )
    proxy = Proxy(ours, Log(ours.log.format, ours.log.level, said), [bill], rack=rack)
    async with trio.open_nursery() as nursery:
        await nursery.start(proxy.run)
        with trio.move_on_after(_START_S):
            while not await is_serving(address):
                await trio.sleep(0.05)
        if not await is_serving(address):
            sys.stderr.write(said.getvalue())
            raise DemoFailed("Sidefetch does not serve")
        yield address, proxy.traffic
        nursery.cancel_scope.cancel()  # its sessions at the brokers are closed all the same
