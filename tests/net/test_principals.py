"""A view of the cluster for each principal, as long as one of its connections is there."""

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
import trio.testing

from proxy.demo.cluster import embedded_cluster
from proxy.net.io.logs import Log
from proxy.net.upstream.access import OPEN, Access
from proxy.net.upstream.principals import Principals
from proxy.net.upstream.topology import TopologyService
from proxy.sasl.logins import Login, PlainLogin
from tests.net.proxied import configured

ALICE, BOB = PlainLogin("alice", "a"), PlainLogin("bob", "b")


@attrs.define
class Stage:
    principals: Principals
    logins: list[Access] = attrs.field(factory=list)
    """One for each view that was made."""

    async def login(self, number: int) -> Login:
        source = self.logins[number].login
        assert source is not None
        return await source()


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    async with embedded_cluster() as cluster, trio.open_nursery() as nursery:
        config = configured(cluster.bootstrap)

        def made(access: Access) -> TopologyService:
            it.logins.append(access)
            return TopologyService(config.upstream, Log("text", "debug", io.StringIO()))

        it = Stage(Principals(OPEN, made))
        nursery.start_soon(it.principals.run)
        await trio.testing.wait_all_tasks_blocked()
        yield it
        nursery.cancel_scope.cancel()


async def test_connections_of_one_principal_share_a_view_and_others_have_their_own() -> None:
    async with stage() as it:
        first = it.principals.enter("alice", ALICE)
        assert it.principals.enter("alice", ALICE) is first
        assert it.principals.enter("bob", BOB) is not first
        with trio.fail_after(10):
            await first.known.wait()
        assert first.topology.brokers
        assert [await it.login(0), await it.login(1)] == [ALICE, BOB]


async def test_latest_login_of_a_principal_is_used() -> None:
    newer = PlainLogin("alice", "newer")
    newest = PlainLogin("alice", "newest")
    async with stage() as it:
        it.principals.enter("alice", ALICE)
        it.principals.enter("alice", newer)
        assert await it.login(0) == newer
        it.principals.renew("alice", newest)
        assert await it.login(0) == newest


async def test_with_its_last_connection_a_view_is_gone() -> None:
    async with stage() as it:
        first = it.principals.enter("alice", ALICE)
        it.principals.enter("alice", ALICE)
        it.principals.leave("alice")
        assert len(it.principals) == 1
        it.principals.leave("alice")
        assert len(it.principals) == 0
        assert it.principals.enter("alice", ALICE) is not first


@pytest.mark.parametrize("login", [ALICE, BOB])
async def test_an_access_as_a_client_is_that_clients(login: Login) -> None:
    async def source() -> Login:
        return login

    access = OPEN.as_client(source)
    assert access.login is source
    assert "client" in access.remedy
    assert OPEN.login is None
