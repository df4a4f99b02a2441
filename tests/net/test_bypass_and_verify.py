"""Bypass and verification over sockets, in front of an embedded cluster."""

from typing import Any

import attrs
import pytest
import trio

from proxy.demo.client import KafkaConnection
from proxy.demo.cluster import embedded_cluster
from proxy.fetch.verify import Compared, compare, samples
from proxy.fetch_rules import FetchRules
from proxy.net.downstream import verifier as net_verify
from tests.net.proxied import Proxied, ask, configured, proxied, running

VERSION = 11


async def fetch(client: KafkaConnection, offsets: dict[int, int], **options: Any) -> Any:
    return await client.call("fetch", VERSION, ask(offsets, **options))


def records_of(response: Any) -> bytes:
    return b"".join(part.records or b"" for topic in response.responses for part in topic.partitions)


def set_bypass(it: Proxied, text: str) -> None:
    """Change the bypass as SIGHUP does."""
    it.proxy.live.apply(attrs.evolve(it.config, bypass=FetchRules.parse(text)))


# -------------------------------------------------------------------------------------------------- bypass


@pytest.mark.parametrize("bypass", ["all", "client:sidefetch-demo", "topic:t"])
async def test_bypassed_fetches_are_forwarded_to_the_broker(bypass: str) -> None:
    async with proxied() as it, it.client(1) as client:
        it.cluster.append("t", 0, [b"first"])
        set_bypass(it, bypass)
        for _ in range(4):
            response = await fetch(client, {0: 0, 1: 0})
            assert b"first" in records_of(response)
            assert [part.partition_index for part in response.responses[0].partitions] == [0, 1]
            await client.call("metadata", 5, {})

    assert it.fetches == []


async def test_bypass_is_turned_on_and_off_in_the_midst_of_reading() -> None:
    async with proxied() as it, it.client(1) as client:
        offset = 0

        async def read_on() -> None:
            nonlocal offset
            it.cluster.append("t", 0, [b"record %d" % offset])
            response = await fetch(client, {0: offset}, max_wait=2_000)
            assert records_of(response).count(b"record ") == 1
            assert b"record %d" % offset in records_of(response)
            offset += 1

        for _ in range(2):
            for _ in range(4):
                await read_on()
            assert it.cluster.sessions == 1
            set_bypass(it, "all")
            seen = len(it.reads)
            for _ in range(4):
                await read_on()
            with trio.fail_after(3):
                while it.cluster.sessions:
                    await trio.sleep(0.01)
            assert len(it.reads) == seen
            set_bypass(it, "")


async def test_a_session_of_the_clients_own_lives_while_it_is_bypassed_and_is_lost_with_it() -> None:
    async with proxied() as it, it.client(1) as client:
        set_bypass(it, "topic:t")
        granted = (await fetch(client, {0: 0}, session_epoch=0)).session_id
        within = {"session_id": granted, "topics": [], "max_wait": 20, "min_bytes": 1, "max_bytes": 1 << 20}
        response = await client.call("fetch", VERSION, {**within, "session_epoch": 1})
        assert granted
        assert it.cluster.sessions == 1
        assert (response.error_code, response.session_id) == (0, granted)

        set_bypass(it, "")
        response = await client.call("fetch", VERSION, {**within, "session_epoch": 2})
        assert response.error_code == 70
        with trio.fail_after(3):
            while it.cluster.sessions:
                await trio.sleep(0.01)
        assert len(it.proxy.client_sessions) == 0


async def test_client_starts_a_new_session_when_bypass_begins_and_when_it_ends() -> None:
    async with proxied() as it, it.client(1) as client:

        async def start() -> int:
            return int((await fetch(client, {0: 0}, session_epoch=0)).session_id)

        async def goes_on(session_id: int, epoch: int) -> int:
            within = {"session_id": session_id, "topics": [], "max_wait": 20, "min_bytes": 1, "max_bytes": 1 << 20}
            return int((await client.call("fetch", VERSION, {**within, "session_epoch": epoch})).error_code)

        for _ in range(2):
            here = await start()
            assert [await goes_on(here, epoch) for epoch in (1, 2)] == [0, 0]
            assert (len(it.proxy.client_sessions), it.proxy.client_sessions.partitions) == (1, 1)
            set_bypass(it, "topic:t")
            assert await goes_on(here, 3) == 70
            there = await start()
            assert [await goes_on(there, epoch) for epoch in (1, 2)] == [0, 0]
            assert len(it.proxy.client_sessions) == 0
            set_bypass(it, "")
            assert await goes_on(there, 3) == 70


# -------------------------------------------------------------------------------------------- verification


async def test_verification_of_delivered_records_finds_no_differences() -> None:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 3, assignment=[[1, 2, 3]] * 3)
        config = attrs.evolve(configured(cluster.bootstrap), verify_rate=1.0)
        async with running(cluster, config) as it, it.client(1) as client:
            for offset in range(5):
                for partition in (0, 1):
                    cluster.append("t", partition, [b"%d-%d" % (partition, offset)])
                await fetch(client, {0: offset, 1: offset, 2: 0})
                await counted(it, "verified", 2 * (offset + 1))
            await fetch(client, {0: 5, 1: 5, 2: 0})

        assert it.proxy.counts["verified"] == 10
        assert it.proxy.counts["verify_differences"] == it.proxy.counts["verify_failed"] == 0
        assert it.logged("verify-mismatch") == it.logged("verify-failed") == []


async def test_verification_covers_session_partitions_omitted_from_the_request() -> None:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 3, assignment=[[1, 2, 3]] * 3)
        config = attrs.evolve(configured(cluster.bootstrap), verify_rate=1.0)
        async with running(cluster, config) as it, it.client(1) as client:
            session_id = (await fetch(client, {0: 0, 1: 0, 2: 0}, session_epoch=0)).session_id
            within = {"session_id": session_id, "max_wait": 2_000, "min_bytes": 1, "max_bytes": 1 << 20}
            cluster.append("t", 1, [b"record"])
            first = await client.call("fetch", VERSION, {**within, "session_epoch": 1, "topics": []})
            await counted(it, "verified", 1)

        assert [part.partition_index for part in first.responses[0].partitions] == [1]
        assert it.proxy.counts["verify_differences"] == it.proxy.counts["verify_failed"] == 0


async def counted(it: Proxied, name: str, count: int) -> None:
    with trio.fail_after(3):
        while it.proxy.counts[name] < count:
            await trio.sleep(0.01)


@pytest.mark.parametrize("extra", [0, 1])
async def test_verification_difference_is_reported_without_records(
    monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    """Another response: with other records, or with an aborted transaction more."""

    def others(*args: Any) -> Any:
        if extra:
            return [attrs.evolve(each, aborted=((7, 0),)) for each in samples(*args)]
        return [attrs.evolve(each, records=b"\0" * len(each.records)) for each in samples(*args)]

    monkeypatch.setattr(net_verify, "samples", others)
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 1, assignment=[[1]])
        cluster.append("t", 0, [b"secret"] * 3)
        config = attrs.evolve(configured(cluster.bootstrap), verify_rate=1.0)
        async with running(cluster, config) as it, it.client(1) as client:
            size = len(records_of(await fetch(client, {0: 0})))
            await counted(it, "verify_differences", 1)

        (line,) = it.logged("verify-mismatch")
        for part in ("topic=t", "partition=0", "offset=0", f"delivered_bytes={size}", f"direct_bytes={size}"):
            assert part in line
        assert f"aborted_missing=0 aborted_extra={extra}" in line
        assert "secret" not in it.log.getvalue()


@pytest.mark.parametrize(("times", "differences"), [(2, 0), (1000, 1)])
async def test_verification_retries_empty_direct_fetch_until_timeout(
    monkeypatch: pytest.MonkeyPatch, times: int, differences: int
) -> None:
    behind = iter(range(times))

    def compared(*arguments: Any, **options: Any) -> list[Compared]:
        lacks = next(behind, None) is not None
        found = compare(*arguments, **options)
        return [attrs.evolve(each, equal=False, direct_bytes=0) if lacks else each for each in found]

    monkeypatch.setattr(net_verify, "compare", compared)
    monkeypatch.setattr(net_verify, "_AGAIN_S", 0.05)
    monkeypatch.setattr(net_verify, "_TIMEOUT_S", 1.0)
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 1, assignment=[[1]])
        cluster.append("t", 0, [b"record"])
        config = attrs.evolve(configured(cluster.bootstrap), verify_rate=1.0)
        async with running(cluster, config) as it, it.client(1) as client:
            await fetch(client, {0: 0})
            await counted(it, "verified", 1)

        assert it.proxy.counts["verify_differences"] == differences
        assert next(behind, 3) > 2


async def test_unreachable_broker_fails_verification_without_difference_or_delay() -> None:
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 1, assignment=[[1]])
        config = attrs.evolve(configured(cluster.bootstrap), verify_rate=1.0)
        async with running(cluster, config) as it, it.client(1) as client:
            await fetch(client, {0: 0})
            cluster.append("t", 0, [b"record"])
            it.proxy.topology.record_address(1, "127.0.0.1", 1)
            for _ in range(3):
                assert b"record" in records_of(await fetch(client, {0: 0}))
            await counted(it, "verify_failed", 1)

        assert it.proxy.counts["verified"] == it.proxy.counts["verify_differences"] == 0
        assert it.logged("verify-failed")


async def test_verification_is_disabled_by_default() -> None:
    async with proxied() as it, it.client(1) as client:
        it.cluster.append("t", 0, [b"record"])
        for _ in range(3):
            await fetch(client, {0: 0})
        await trio.sleep(0.05)

    assert not [name for name in it.proxy.counts if name.startswith("verif")]
