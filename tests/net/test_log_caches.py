"""The log caches of a process: their members, logins and ends."""

import io
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from proxy.cluster.routing import Source
from proxy.cluster.topology import BrokerId
from proxy.config import LogConfig
from proxy.errors import BrokerUnavailable
from proxy.fetch.cache import CacheKey
from proxy.fetch.commands import CloseFetcher, FetcherId, FetcherKind
from proxy.fetch.fetch_config import FetchConfig
from proxy.net.io.logs import Log
from proxy.net.io.memory import Budget
from proxy.net.upstream.access import Access
from proxy.net.upstream.connections import ConnectOptions
from proxy.net.upstream.log_caches import LogCaches

SHARED = CacheKey("PLAIN:alice", "sidefetch", 0, "", False, False, None)
OWN = SHARED._replace(owner="a connection", is_exclusive=True)


class Member:
    """A client connection whose errors are recorded."""

    def __init__(self, name: str) -> None:
        self.access = Access(remedy=name)
        self.reader: Any = name
        self.errors: list[Exception] = []

    def fail(self, error: Exception) -> None:
        self.errors.append(error)


class Process:
    """The log caches of a process, whose brokers have no addresses."""

    def __init__(self) -> None:
        self._lines = io.StringIO()
        self.log = Log(LogConfig().format, "debug", self._lines)
        self.caches = LogCaches(FetchConfig(10.0, fetch_buffer_bytes=8 << 20, response_timeout_s=5), self.log)
        budget = Budget(1 << 20, self.log)
        self._options = ConnectOptions(lambda _: pytest.fail("opened"), 5, 5, budget, self.log, lambda: None)

    def join(self, member: Any, key: CacheKey = SHARED) -> Any:
        return self.caches.join(key, member.reader, member, self._options)

    def log_text(self) -> str:
        return self._lines.getvalue()

    def access(self, key: CacheKey = SHARED) -> Access:
        """Return the login of the next connection to a broker."""
        return self.caches._runners[key]._links.access


async def test_clients_with_equal_keys_join_one_cache() -> None:
    process, alice, other = Process(), Member("alice"), Member("other")
    async with trio.open_nursery() as nursery:
        await nursery.start(process.caches.run)

        assert process.join(alice) is process.join(other)
        assert process.join(alice, OWN) is not process.join(alice)
        nursery.cancel_scope.cancel()


async def test_l12_connections_use_the_newest_login_of_a_present_member() -> None:
    process, first, second = Process(), Member("first"), Member("second")
    async with trio.open_nursery() as nursery:
        await nursery.start(process.caches.run)
        cache = process.join(first)
        process.join(second)
        assert process.access() is second.access

        process.caches.part(cache, second.reader)

        assert process.access() is first.access
        nursery.cancel_scope.cancel()


async def test_l12_shared_cache_closes_10_s_after_its_last_member_left(
    autojump_clock: MockClock,  # noqa: ARG001
) -> None:
    process, member = Process(), Member("alice")
    async with trio.open_nursery() as nursery:
        await nursery.start(process.caches.run)
        cache = process.join(member)
        process.caches.part(cache, member.reader)
        await trio.sleep(6)
        assert process.join(member) is cache
        process.caches.part(cache, member.reader)
        await trio.sleep(9)
        assert process.join(member) is cache
        process.caches.part(cache, member.reader)

        await trio.sleep(11)

        assert process.join(member) is not cache
        nursery.cancel_scope.cancel()


async def test_cache_of_one_connection_closes_when_the_connection_ends() -> None:
    process, member = Process(), Member("alice")
    async with trio.open_nursery() as nursery:
        await nursery.start(process.caches.run)
        cache = process.join(member, OWN)

        process.caches.part(cache, member.reader)

        assert process.join(member, OWN) is not cache
        nursery.cancel_scope.cancel()


async def test_client_that_comes_after_a_cache_has_failed_joins_another_one() -> None:
    process, first, second = Process(), Member("first"), Member("second")
    async with trio.open_nursery() as nursery:
        await nursery.start(process.caches.run)
        cache = process.join(first)
        await wait_all_tasks_blocked()
        cache.settle = None  # a bug
        runner = process.caches._runners[SHARED]
        assert runner._links.nursery is not None
        runner._links.nursery.start_soon(runner._drop_records)
        await wait_all_tasks_blocked()

        assert [type(each) for each in first.errors] == [BrokerUnavailable]
        assert process.join(second) is not cache
        process.caches.part(cache, first.reader)
        assert list(process.caches._runners[SHARED].members) == [second.reader]
        nursery.cancel_scope.cancel()


async def test_broker_whose_responses_are_damaged_does_not_fill_the_log() -> None:
    process, member = Process(), Member("alice")
    async with trio.open_nursery() as nursery:
        await nursery.start(process.caches.run)
        process.join(member)
        await wait_all_tasks_blocked()
        runner = process.caches._runners[SHARED]
        for node in (1, 1, 1, 2):
            fetcher = FetcherId(Source(BrokerId(node)), FetcherKind.LIVE)
            runner._carry_out(CloseFetcher(fetcher, "it has damaged a response", is_fault=True))

        assert process.log_text().count(" fetch-connection-closed ") == 2
        nursery.cancel_scope.cancel()


async def test_deadline_that_passes_while_the_cache_settles_is_not_missed(autojump_clock: MockClock) -> None:
    process, member = Process(), Member("alice")
    async with trio.open_nursery() as nursery:
        await nursery.start(process.caches.run)
        cache = process.join(member)
        await wait_all_tasks_blocked()
        due_s, settled = trio.current_time() + 0.001, list[float]()

        def settle(now_s: float) -> None:
            settled.append(now_s)
            autojump_clock.jump(0.002)

        cache.settle = settle
        cache.deadline_s = lambda now_s: due_s if due_s > now_s else None
        process.caches.part(cache, member.reader)
        await trio.sleep(1)

        assert settled[-1] >= due_s
        nursery.cancel_scope.cancel()
