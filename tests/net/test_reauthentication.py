"""Logins that end, with a broker that holds to it: who does not renew in time is hung up on."""

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from kio.schema.api_versions.v3.response import ApiVersion, ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v4.request import MetadataRequest
from kio.static.primitive import i16, i32Timedelta, i64Timedelta

from proxy.cluster.routing import Source
from proxy.cluster.topology import BrokerId
from proxy.config import Address
from proxy.errors import BrokerUnavailable, LoginRefused
from proxy.fetch.commands import FetcherId, FetcherKind
from proxy.net.io.logs import Log
from proxy.net.io.memory import Budget
from proxy.net.io.sockets import FrameSocket, Outbox
from proxy.net.upstream.access import Access
from proxy.net.upstream.brokers import BrokerConnection, open_broker
from proxy.net.upstream.connections import ConnectOptions, UpstreamConnections
from proxy.net.upstream.reauthentication import Reauthenticator
from proxy.relay.commands import Event, LinkFrame, LinkOpened
from proxy.sasl.logins import Login, PlainLogin
from proxy.wire import messages, sasl
from proxy.wire.apis import ApiKey
from proxy.wire.frames import with_size
from proxy.wire.headers import read_request_header

LIFETIME_S = 0.3


@attrs.define
class BrokerWithExpiringLogins:
    """A broker that knows alice for a while, and answers everything else with the correlation id alone."""

    address: Address
    password: bytes = b"secret"
    mechanisms: tuple[str, ...] = ("PLAIN",)
    seen: list[int] = attrs.field(factory=list)
    """API keys."""
    hold_s: float = 0
    """The delay of all other responses."""

    async def serve(self, stream: trio.SocketStream) -> None:
        until_s = 0.0
        with FrameSocket(stream, 1 << 20) as client:
            while frames := await client.receive():
                for frame in frames:
                    header, _ = read_request_header(frame)
                    self.seen.append(header.api_key)
                    match header.api_key:
                        case ApiKey.API_VERSIONS:
                            answer = messages.response_frame(header.correlation_id, _served())
                        case ApiKey.SASL_HANDSHAKE:
                            known = str(sasl.read_request(header, frame).mechanism) in self.mechanisms
                            answer = sasl.handshake_response(header, self.mechanisms, is_accepted=known)
                        case ApiKey.SASL_AUTHENTICATE:
                            said = bytes(sasl.read_request(header, frame).auth_bytes)
                            answer = self._judged(header, said)
                            until_s = trio.current_time() + LIFETIME_S
                        case _ if trio.current_time() > until_s:
                            return
                        case _:
                            await trio.sleep(self.hold_s)
                            answer = with_size(header.correlation_id.to_bytes(4))
                    await client.send([answer])

    def _judged(self, header: Any, said: bytes) -> bytes:
        if said != b"\0alice\0" + self.password:
            return sasl.error_response(header, ErrorCode.sasl_authentication_failed, "no such password")
        lifetime = i64Timedelta.parse(timedelta(seconds=LIFETIME_S))
        return sasl.make_response(
            header, error_code=ErrorCode.none, error_message=None, auth_bytes=b"", session_lifetime=lifetime
        )


def _served() -> ApiVersionsResponse:
    keys = (ApiKey.METADATA, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
    served = tuple(ApiVersion(api_key=i16(key), min_version=i16(0), max_version=i16(2)) for key in keys)
    return ApiVersionsResponse(
        error_code=ErrorCode.none, api_keys=served, throttle_time=i32Timedelta.parse(timedelta(0))
    )


@asynccontextmanager
async def broker() -> AsyncIterator[BrokerWithExpiringLogins]:
    async with trio.open_nursery() as nursery:
        reported = BrokerWithExpiringLogins(Address("127.0.0.1", 1))
        (listener,) = await nursery.start(partial(trio.serve_tcp, reported.serve, 0, host="127.0.0.1"))
        reported.address = Address("127.0.0.1", listener.socket.getsockname()[1])
        yield reported
        nursery.cancel_scope.cancel()


async def alice() -> Login:
    return PlainLogin("alice", "secret")


async def connected(to: BrokerWithExpiringLogins) -> BrokerConnection:
    return await open_broker(to.address, client_id=None, connect_timeout_s=5, access=Access(login=alice))


def request(correlation_id: int) -> bytes:
    return messages.request_frame(correlation_id, None, MetadataRequest(topics=(), allow_auto_topic_creation=False))


async def test_a_connection_of_ours_logs_in_again_before_it_is_too_late() -> None:
    async with broker() as it:
        connection = await connected(it)
        with connection.frames:
            for number in range(4):
                assert await connection.exchange([request(number)]) == number.to_bytes(4)
                await trio.sleep(LIFETIME_S)
        logins = it.seen.count(ApiKey.SASL_AUTHENTICATE)
    assert logins == 4
    assert it.seen[-3:] == [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.METADATA]


async def test_reauthentication_holds_new_requests_and_delivers_outstanding_responses() -> None:
    async with broker() as it:
        connection = await connected(it)
        with connection.frames as frames:
            outbox = Outbox(frames)
            standing = Reauthenticator(connection, outbox.put)
            got: list[int] = []

            async def receive() -> None:
                while some := await frames.receive():
                    got.extend(int.from_bytes(each[:4]) for each in some if not standing.take_response(each))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(outbox.pump)
                nursery.start_soon(receive)
                it.hold_s = 0.2
                outbox.put([request(1)])
                await trio.sleep(LIFETIME_S)
                assert standing.is_due(trio.current_time())
                standing.begin()
                assert not standing.is_due(trio.current_time())
                standing.hold([request(3)])
                nursery.start_soon(standing.renew, Access(login=alice))
                with trio.fail_after(5):
                    await standing.wait_until_renewed()
                    while got != [1, 3]:
                        await trio.sleep(0.01)
                assert not standing.is_renewing
                nursery.cancel_scope.cancel()
    assert it.seen[-4:] == [ApiKey.METADATA, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.METADATA]


async def test_refused_reauthentication_raises_and_unblocks_waiters() -> None:
    async with broker() as it:
        connection = await connected(it)
        with connection.frames as frames:
            standing = Reauthenticator(connection, Outbox(frames).put)
            it.password = b"another"
            standing.begin()
            standing.hold([request(3)])

            async def receive() -> None:
                while some := await frames.receive():
                    assert all(standing.take_response(each) for each in some)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(receive)
                with pytest.raises(LoginRefused, match=r"PLAIN is refused \(no such password\)"):
                    await standing.renew(Access(login=alice))
                with trio.fail_after(1):
                    await standing.wait_until_renewed()
                nursery.cancel_scope.cancel()
    assert ApiKey.METADATA not in it.seen


async def test_disabled_sasl_mechanism_is_reported_with_enabled_mechanisms() -> None:
    async with broker() as it:
        it.mechanisms = ("SCRAM-SHA-256", "GSSAPI")
        with pytest.raises(BrokerUnavailable, match="PLAIN is not enabled there, but SCRAM-SHA-256, GSSAPI: set"):
            await connected(it)


async def test_the_login_of_the_newest_member_renews_a_connection() -> None:
    """L12: the client that opened a shared connection may have left, and its password may have changed."""
    link, (send, received) = FetcherId(Source(BrokerId(1)), FetcherKind.LIVE), trio.open_memory_channel[Event](10)
    log = Log("text", "debug", io.StringIO())
    async with broker() as it, trio.open_nursery() as nursery:
        options = ConnectOptions(lambda _: it.address, 5, 5, Budget(1 << 20, log), log, lambda: None)
        links = UpstreamConnections(
            options,
            Access(login=alice),
            handle=send.send_nowait,
            add_memory_wait=lambda _: None,
            observe=lambda _: None,
        )
        links.nursery = nursery
        links.open(link, None)
        assert isinstance(await received.receive(), LinkOpened)

        async def newest() -> Login:
            return PlainLogin("alice", "changed")

        it.password, links.access = b"changed", Access(login=newest)
        await trio.sleep(LIFETIME_S)
        links.send(link, [request(7)])
        with trio.fail_after(5):
            answer = await received.receive()
        links.disconnect(link)

    assert isinstance(answer, LinkFrame)
    assert answer.frame == (7).to_bytes(4)
