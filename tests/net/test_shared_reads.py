"""Clients that share reads, over sockets in front of an embedded cluster: changed rules and verification."""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio

from proxy.demo.client import KafkaConnection
from proxy.demo.cluster import EmbeddedCluster, embedded_cluster
from proxy.fetch_rules import FetchRules
from tests.net.proxied import Proxied, ask, configured, running

VERSION = 11
RECORDS = 40
CLIENTS = 3


@asynccontextmanager
async def sharing(*, verify_rate: float = 0.0) -> AsyncIterator[Proxied]:
    """A proxy whose clients share reads, in front of topic ``t`` with three partitions that broker 1 leads."""
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 3, assignment=[[1, 2, 3]] * 3)
        config = configured(cluster.bootstrap)
        upstream = attrs.evolve(config.upstream, share_reads="principal")
        async with running(cluster, attrs.evolve(config, upstream=upstream, verify_rate=verify_rate)) as it:
            yield it


def set_rules(it: Proxied, text: str) -> None:
    """Change ``share-reads-except`` as SIGHUP does."""
    upstream = attrs.evolve(it.config.upstream, share_reads_except=FetchRules.parse(text))
    it.proxy.live.apply(attrs.evolve(it.config, upstream=upstream))


def readers_by_cache(it: Proxied) -> list[int]:
    """Return the number of client connections that use each log cache, in ascending order."""
    caches = [client._relay.cache for client in it.proxy.clients]
    return sorted(caches.count(each) for each in {each for each in caches if each is not None})


async def until_readers_by_cache(it: Proxied, *expected: int) -> None:
    with trio.fail_after(5):
        while readers_by_cache(it) != list(expected):
            await trio.sleep(0.01)


def batches(records: bytes) -> list[tuple[int, bytes]]:
    """Return the base offset and the encoded bytes of each batch."""
    found, at = [], 0
    while at < len(records):
        offset, size = struct.unpack_from(">qi", records, at)
        found.append((offset, records[at : at + 12 + size]))
        at += 12 + size
    return found


async def read_all(client: KafkaConnection, delivered: list[tuple[int, bytes]]) -> None:
    """Read partition 0, whose batches have one record each, up to offset ``RECORDS``."""
    offset = 0
    while offset < RECORDS:
        response = await client.call("fetch", VERSION, ask({0: offset}, max_wait=100))
        ((part,),) = (topic.partitions for topic in response.responses)
        assert part.error_code == 0
        found = batches(part.records or b"")
        delivered += found
        offset += len(found)


async def produce(cluster: EmbeddedCluster) -> None:
    for offset in range(RECORDS):
        cluster.append("t", 0, [b"record %d" % offset])
        await trio.sleep(0.02)


async def test_each_record_is_delivered_once_while_clients_stop_sharing_and_share_again() -> None:
    delivered: list[list[tuple[int, bytes]]] = [[] for _ in range(CLIENTS)]
    async with sharing() as it:

        async def read(each: list[tuple[int, bytes]]) -> None:
            async with it.client(1) as client:
                await read_all(client, each)

        async with trio.open_nursery() as nursery:
            for each in delivered:
                nursery.start_soon(read, each)
            nursery.start_soon(produce, it.cluster)
            await until_readers_by_cache(it, CLIENTS)
            for rules in ("all", "topic:t"):
                set_rules(it, rules)
                await until_readers_by_cache(it, *[1] * CLIENTS)
                set_rules(it, "")
                await until_readers_by_cache(it, CLIENTS)
            assert any(len(each) < RECORDS for each in delivered)

    for each in delivered:
        assert [offset for offset, _ in each] == list(range(RECORDS))
        assert all(b"record %d" % offset in batch for offset, batch in each)


async def test_clients_of_other_topics_go_on_sharing() -> None:
    async with sharing() as it, it.client(1) as first, it.client(1) as second, it.client(1) as third:
        it.cluster.create_topic("u", 1, assignment=[[1]])
        set_rules(it, "topic:u")
        for client, topic in ((first, "t"), (second, "t"), (third, "u")):
            await client.call("fetch", VERSION, ask({0: 0}, topic))
        assert readers_by_cache(it) == [1, 2]


# -------------------------------------------------------------------------------------------- verification


def records_of(response: Any) -> bytes:
    return b"".join(part.records or b"" for topic in response.responses for part in topic.partitions)


async def counted(it: Proxied, name: str, count: int) -> None:
    with trio.fail_after(3):
        while it.proxy.counts[name] < count:
            await trio.sleep(0.01)


async def test_verify_compares_responses_from_a_shared_log() -> None:
    async with sharing(verify_rate=1.0) as it, it.client(1) as first, it.client(1) as second:
        it.cluster.append("t", 0, [b"record"])
        assert b"record" in records_of(await first.call("fetch", VERSION, ask({0: 0})))
        reads = sum(each.record_bytes > 0 for each in it.reads)
        assert b"record" in records_of(await second.call("fetch", VERSION, ask({0: 0})))
        await counted(it, "verified", 2)

        assert sum(each.record_bytes > 0 for each in it.reads) == reads == 1
        assert it.proxy.counts["verify_differences"] == it.proxy.counts["verify_failed"] == 0


async def test_verify_finds_a_shared_log_that_differs_from_the_brokers() -> None:
    async with sharing(verify_rate=1.0) as it, it.client(1) as first, it.client(1) as second:
        it.cluster.append("t", 0, [b"former"])
        await first.call("fetch", VERSION, ask({0: 0}))
        await counted(it, "verified", 1)
        it.cluster.create_topic("other", 1, assignment=[[1]])
        it.cluster.append("other", 0, [b"latter"])
        it.cluster.partition("t", 0).log = it.cluster.partition("other", 0).log

        assert b"former" in records_of(await second.call("fetch", VERSION, ask({0: 0})))
        await counted(it, "verify_differences", 1)

        (line,) = it.logged("verify-mismatch")
        assert "topic=t partition=0 offset=0" in line
