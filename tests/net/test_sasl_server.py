"""Clients that have to say who they are: how they may go about it, and how not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from proxy.config import DownstreamSecurity, LimitsConfig
from proxy.config.allowed_apis import AllowedApis
from proxy.demo.client import KafkaConnection
from proxy.demo.messages import encode_request
from proxy.errors import ErrorCode
from proxy.net.downstream import sasl_server
from proxy.net.io import files
from proxy.sasl.scram import ScramClient
from proxy.sasl.users import make_line
from proxy.wire import sasl
from proxy.wire.apis import ApiKey
from proxy.wire.frames import with_size
from proxy.wire.headers import RequestHeader
from tests.net.proxied import Proxied, ask
from tests.net.tls_clients import secured

HANDSHAKE, AUTHENTICATE = 17, 36
RIGHT = b"\0alice\0secret"


def users(folder: Path, **passwords: str) -> str:
    path = folder / "users"
    lines = [make_line(name, "SCRAM-SHA-256", word, b"salt", 4096) for name, word in passwords.items()]
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture(autouse=True)
def quickly_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl_server, "_REFUSED_S", (0.1, 0.1))


@asynccontextmanager
async def asking(folder: Path, limits: LimitsConfig | None = None) -> AsyncIterator[Proxied]:
    security = DownstreamSecurity(sasl_file=users(folder, alice="secret", bob="hidden"))
    async with secured(security, limits) as it:
        yield it


async def asked(client: KafkaConnection, key: int, version: int, said: dict[str, Any]) -> Any:
    """The answer; None where we are hung up on."""
    await client.send_frame(encode_request(key, version, 7, "c", said))
    frame = await client.receive_frame()
    return None if frame is None else sasl.read_response(RequestHeader(key, version, 7, "c"), memoryview(frame))


async def logged_in(client: KafkaConnection, message: bytes, *, version: int = 2) -> Any:
    """The answer to PLAIN."""
    assert (await asked(client, HANDSHAKE, 1, {"mechanism": "PLAIN"})).error_code == 0
    return await asked(client, AUTHENTICATE, version, {"auth_bytes": message})


async def read(client: KafkaConnection, **options: Any) -> Any:
    return await client.call("fetch", 11, ask({0: 0, 1: 0, 2: 0}, **options))


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_client_with_correct_password_is_served(tmp_path: Path, version: int) -> None:
    async with asking(tmp_path) as it, it.client(1) as client:
        assert (await logged_in(client, RIGHT, version=version)).error_code == 0
        assert (await read(client)).error_code == 0


async def test_api_versions_response_is_the_same_before_and_after_authentication(tmp_path: Path) -> None:
    limits = LimitsConfig(allowed_apis=AllowedApis.parse("clients"))
    async with asking(tmp_path, limits) as it, it.client() as client:
        before = await client.call("api_versions", 0, {})
        assert {each.api_key for each in before.api_keys}.isdisjoint(
            {ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_CONFIGS}
        )
        assert (await logged_in(client, RIGHT)).error_code == 0
        assert await client.call("api_versions", 0, {}) == before


async def test_an_old_client_sends_its_messages_as_they_are(tmp_path: Path) -> None:
    async with asking(tmp_path) as it, it.client(1) as client:
        assert (await asked(client, HANDSHAKE, 0, {"mechanism": "SCRAM-SHA-256"})).error_code == 0
        scram = ScramClient("SCRAM-SHA-256", "bob", "hidden", "mine")
        await client.send_frame(with_size(scram.first_message()))
        challenge = await client.receive_frame()
        assert challenge is not None
        await client.send_frame(with_size(scram.final_message(challenge)))
        final = await client.receive_frame()
        assert final is not None
        scram.verify_server(final)
        assert (await read(client)).error_code == 0


async def test_request_pipelined_after_authentication_is_served(tmp_path: Path) -> None:
    async with asking(tmp_path) as it, it.client(1) as client:
        assert (await asked(client, HANDSHAKE, 1, {"mechanism": "PLAIN"})).error_code == 0
        login = encode_request(AUTHENTICATE, 2, 7, "c", {"auth_bytes": RIGHT})
        await client.send_frame(login + encode_request(3, 5, 8, "c", {}))
        first, second = await client.receive_frame(), await client.receive_frame()
        assert first is not None
        assert second is not None
        assert (first[:4], second[:4]) == ((7).to_bytes(4), (8).to_bytes(4))


@pytest.mark.parametrize("message", [b"\0alice\0hidden", b"\0carol\0secret", b"\0alice\0secre"])
async def test_wrong_credentials_are_rejected_late_and_connection_closes(tmp_path: Path, message: bytes) -> None:
    async with asking(tmp_path) as it:
        async with it.client(1) as client:
            began_s = trio.current_time()
            refused = await logged_in(client, message)
            assert refused.error_code == ErrorCode.sasl_authentication_failed
            assert trio.current_time() - began_s >= 0.1
            assert await client.receive_frame() is None
        assert it.proxy.counts["logins_refused"] == 1
        assert len(it.logged("authentication-failed")) == 1
        assert "secre" not in it.log.getvalue()


async def test_nothing_else_is_served_before(tmp_path: Path) -> None:
    async with asking(tmp_path) as it:
        async with it.client(1) as client:
            await client.send("metadata", 5, {})
            assert await client.receive_frame() is None
        async with it.client(1) as client:
            assert await asked(client, AUTHENTICATE, 2, {"auth_bytes": RIGHT}) is None
        async with it.client(1) as client:
            answer = await asked(client, HANDSHAKE, 1, {"mechanism": "GSSAPI"})
            assert answer.error_code == ErrorCode.unsupported_sasl_mechanism
            assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256")
            assert await client.receive_frame() is None
        async with it.client(1) as client:
            await client.send_frame((1 << 20).to_bytes(4))
            assert await client.receive_frame() is None
        assert it.fetches == []
        assert it.proxy.counts["client_protocol_errors"] == 4


async def test_connection_is_closed_at_login_timeout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sasl_server, "_LOGIN_S", 0.1)
    async with asking(tmp_path) as it, it.client(1) as client:
        with trio.fail_after(5):
            assert await client.receive_frame() is None


async def test_fetch_session_is_found_only_by_the_user_that_created_it(tmp_path: Path) -> None:
    async with asking(tmp_path) as it:
        async with it.client(1) as client:
            await logged_in(client, RIGHT)
            session_id = (await read(client, session_epoch=0)).session_id
        assert session_id
        going_on: dict[str, Any] = {"session_id": session_id, "session_epoch": 1, "topics": []}
        for message, error in ((b"\0bob\0hidden", ErrorCode.fetch_session_id_not_found), (RIGHT, ErrorCode.none)):
            async with it.client(1) as client:
                await logged_in(client, message)
                assert (await client.call("fetch", 11, ask({}, **going_on))).error_code == error


async def test_a_second_login_goes_nowhere(tmp_path: Path) -> None:
    async with asking(tmp_path) as it, it.client(1) as client:
        await logged_in(client, RIGHT)
        assert (
            await asked(client, HANDSHAKE, 1, {"mechanism": "PLAIN"})
        ).error_code == ErrorCode.illegal_sasl_state


async def test_users_may_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "POLL_S", 0.05)
    async with asking(tmp_path) as it:
        users(tmp_path, dave="new")
        with trio.fail_after(5):
            while not it.logged("credentials-reloaded"):
                await trio.sleep(0.02)
        async with it.client(1) as client:
            assert (await logged_in(client, RIGHT)).error_code == ErrorCode.sasl_authentication_failed
        async with it.client(1) as client:
            assert (await logged_in(client, b"\0dave\0new")).error_code == 0
