"""Tokens by client credentials, from a server that can be made to fail."""

import io
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from proxy.config import UpstreamSecurity
from proxy.errors import BrokerUnavailable, ConfigError
from proxy.net.io.logs import Log
from proxy.net.upstream.access import Access, access_of
from proxy.sasl.logins import BearerLogin
from tests.certificates import Authority
from tests.net.token_server import Server


@pytest.fixture
def server(authority: Authority) -> Iterator[Server]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours = authority.issue("127.0.0.1")
    context.load_cert_chain(ours.cert, ours.key)
    with Server(context) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def access(server: Server, folder: Path, log: io.StringIO | None = None, **more: Any) -> Access:
    (folder / "id").write_text("side:fetch\n")
    (folder / "secret").write_text("s&cret\n")
    settings = {
        "sasl": "OAUTHBEARER",
        "token_url": server.url,
        "client_id_file": str(folder / "id"),
        "client_secret_file": str(folder / "secret"),
        "token_ca": str(folder / "ca.pem"),
        **more,
    }
    return access_of(UpstreamSecurity(**settings), Log("text", "debug", log or io.StringIO()))


async def login(access: Access) -> BearerLogin:
    assert access.login is not None
    expected = await access.login()
    assert isinstance(expected, BearerLogin)
    return expected


async def test_token_is_requested_with_client_credentials_and_renewed_before_expiry(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = access(server, tmp_path, scope="kafka read")
    start_s = trio.current_time()
    for now_s, token in ((0, "token-1"), (79, "token-1"), (81, "token-2"), (82, "token-2")):
        monkeypatch.setattr(trio, "current_time", lambda now_s=now_s: start_s + now_s)
        assert (await login(ours)).token == token

    (authorization, form), _ = server.asked
    assert authorization == "Basic c2lkZSUzQWZldGNoOnMlMjZjcmV0"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka read"]}


async def test_a_token_that_lives_still_is_used_while_there_is_no_new_one(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = io.StringIO()
    ours = access(server, tmp_path, log)
    start_s = trio.current_time()
    await login(ours)
    server.refused = (503, b"", {})

    monkeypatch.setattr(trio, "current_time", lambda: start_s + 90)
    assert (await login(ours)).token == "token-1"
    assert "token-refresh-failed" in log.getvalue()
    monkeypatch.setattr(trio, "current_time", lambda: start_s + 101)
    with pytest.raises(BrokerUnavailable, match="answers 503"):
        await login(ours)


async def test_concurrent_logins_share_one_token_request(server: Server, tmp_path: Path) -> None:
    ours = access(server, tmp_path)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(login, ours)

    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            (401, b'{"error":"invalid_client"}', {}),
            r"answers 401 \(invalid_client\): see upstream-sasl-client-id-file",
        ),
        ((400, b"x", {}), "answers 400: see"),
        ((302, b"", {"Location": "https://127.0.0.1:1/"}), "answers 302"),
        ((200, b"{}", {}), "something else than a token"),
        ((200, b"[]", {}), "something else than a token"),
        ((200, b"\xff", {}), "something else than a token"),
        ((200, b'{"access_token":"a b"}', {}), "holds no token"),
        ((200, b'{"access_token":7}', {}), "holds no token"),
    ],
)
async def test_failed_token_request_is_reported_without_the_client_secret(
    server: Server, tmp_path: Path, answer: tuple[int, bytes, dict[str, str]], expected: str
) -> None:
    server.refused = answer

    with pytest.raises(BrokerUnavailable, match=expected) as wrong:
        await login(access(server, tmp_path))

    assert "s&cret" not in str(wrong.value)
    assert len(server.asked) == 1


async def test_a_server_whose_authority_is_not_known_gets_no_secret(server: Server, tmp_path: Path) -> None:
    with pytest.raises(BrokerUnavailable, match="upstream-sasl-token-ca"):
        await login(access(server, tmp_path, token_ca=None))

    assert server.asked == []


def test_a_secret_that_is_not_there_keeps_us_from_starting(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="upstream-sasl-client-secret-file: /nowhere"):
        access(server, tmp_path, client_secret_file="/nowhere")
