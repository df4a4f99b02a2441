"""TLS: the same frames over it, and clients that come by it."""

import io
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from proxy.config import DownstreamSecurity, LogConfig, UpstreamSecurity
from proxy.errors import BrokerUnavailable, ConfigError, ErrorCode
from proxy.net.io import files
from proxy.net.io.files import WatchedFiles
from proxy.net.io.logs import Log
from proxy.net.io.memory import Budget
from proxy.net.io.sockets import FrameSocket, Outbox
from proxy.net.io.tls import TlsSocket, server_context, start_tls
from proxy.net.upstream.access import access_of
from proxy.wire.frames import with_size
from tests.certificates import Authority, Files
from tests.net.budgets import MIB, budgeted
from tests.net.proxied import ask
from tests.net.tls_clients import client, read, secured, trusting

SIZES = (0, 1, 10, 16_383, 16_384, 16_385, 60_000, 3 * MIB, 5, 100_000)


@pytest.fixture
def ours(authority: Authority) -> Files:
    return authority.issue("127.0.0.1", file="sidefetch")


def shown(files: Files, **more: Any) -> DownstreamSecurity:
    return DownstreamSecurity(tls_cert=str(files.cert), tls_key=str(files.key), **more)


@attrs.frozen
class Ends:
    """The two ends of one connection."""

    server: FrameSocket
    client: FrameSocket


@asynccontextmanager
async def connected(authority: Authority, files: Files, budget: Budget | None = None) -> AsyncIterator[Ends]:
    """Two that have shaken hands; the client draws on *budget*."""
    tls = server_context(shown(files), Log(LogConfig().format, "debug", io.StringIO()))
    assert tls is not None
    secured: list[TlsSocket] = []
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

    async def accept() -> None:
        stream = await listener.accept()
        assert tls is not None
        secured.append(await start_tls(stream, tls.value))

    async with listener, trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        stream = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        client = await start_tls(stream, trusting(authority), host="127.0.0.1")
    with ExitStack() as stack:
        server_end = stack.enter_context(FrameSocket(secured[0], 100 * MIB))
        yield Ends(server_end, stack.enter_context(FrameSocket(client, 100 * MIB, budget)))


async def receive(frames: FrameSocket, count: int) -> list[bytes]:
    got: list[bytes] = []
    while len(got) < count and (some := await frames.receive()):
        got += [bytes(each) for each in some]
        some.clear()
    return got


async def test_frames_of_all_sizes_arrive_as_they_were_both_ways(authority: Authority, ours: Files) -> None:
    payloads = [bytes([number]) * size for number, size in enumerate(SIZES)]
    got: dict[str, list[bytes]] = {}

    async def take(name: str, frames: FrameSocket) -> None:
        got[name] = await receive(frames, len(SIZES))

    async with connected(authority, ours) as ends, trio.open_nursery() as nursery:
        nursery.start_soon(take, "client", ends.client)
        nursery.start_soon(take, "server", ends.server)
        nursery.start_soon(ends.server.send, [with_size(each) for each in payloads])
        nursery.start_soon(ends.client.send, [piece for each in payloads for piece in (with_size(each)[:4], each)])

    assert got == {"client": payloads, "server": payloads}


async def test_large_frame_callback_runs_before_memory_is_claimed(authority: Authority, ours: Files) -> None:
    budget = budgeted().budget
    reported: list[int] = []
    async with connected(authority, ours, budget) as ends:
        ends.client.on_large_frame = lambda: reported.append(budget.claimed_bytes)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ends.server.send, [with_size(bytes(MIB))])
            (frame,) = await ends.client.receive()
            assert budget.claimed_bytes >= MIB
        assert len(frame) == MIB
    assert reported == [0]


async def test_flush_blocks_on_full_socket_and_resumes_when_peer_reads(authority: Authority, ours: Files) -> None:
    """And gets all of it when it reads, though records were cut where the socket was full."""
    payload = bytes(range(256)) * (16 * MIB // 256)
    async with connected(authority, ours) as ends:
        outbox = Outbox(ends.server)
        outbox.put([with_size(payload)])
        with trio.move_on_after(0.2) as waited:
            await outbox.flush()
        assert waited.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outbox.flush)
            assert await receive(ends.client, 1) == [payload]


async def test_a_name_that_no_certificate_could_be_for_is_no_bug(authority: Authority) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        stream = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
        with pytest.raises(OSError, match="is not a valid host name"):
            await start_tls(stream, trusting(authority), host=f"{'x' * 70}.example")


async def test_receive_returns_no_frames_after_peer_closes(authority: Authority, ours: Files) -> None:
    async with connected(authority, ours) as ends:
        ends.server.close()
        assert await ends.client.receive() == []


# --------------------------------------------------------------------------------------------- the clients


async def test_clients_are_served_by_tls_and_in_plaintext_they_are_not(authority: Authority, ours: Files) -> None:
    async with secured(shown(ours)) as it:
        async with client(it, trusting(authority)) as connection:
            assert (await read(connection)).error_code == 0
        async with it.client(1) as plain:
            await plain.send("metadata", 5, {})
            assert await plain.receive_frame() is None

        assert "the client speaks plaintext" in it.logged("client-tls-failed")[0]
        assert it.proxy.counts["handshakes_failed"] == 1


async def test_silent_client_is_disconnected_at_tls_handshake_timeout(
    ours: Files,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.net.downstream.handshakes._LONGEST_S", 0.1)
    async with secured(shown(ours)) as it, it.client(1) as silent:
        with trio.fail_after(5):
            assert await silent.receive_frame() is None
        assert "the TLS handshake timed out" in it.logged("client-tls-failed")[0]


async def test_where_clients_need_a_certificate_none_is_served_without(
    authority: Authority, ours: Files, tmp_path: Path
) -> None:
    theirs = authority.issue("app", file="app", common_name="app")
    stranger = Authority(tmp_path, "stranger").issue("app", file="stranger-app")
    async with secured(shown(ours, tls_client_ca=str(authority.path))) as it:
        certified = trusting(authority, tls_cert=str(theirs.cert), tls_key=str(theirs.key))
        async with client(it, certified) as connection:
            assert (await read(connection)).error_code == 0

        strange = trusting(authority, tls_cert=str(stranger.cert), tls_key=str(stranger.key))
        for context in (trusting(authority), strange):
            async with client(it, context) as connection:
                with pytest.raises(OSError, match="closed"):
                    await read(connection)
        without, unknown = it.logged("client-tls-failed")
        assert "the client sends no certificate" in without
        assert "see listen-tls-client-ca" in unknown


async def test_a_session_is_found_by_the_principal_alone_that_made_it(authority: Authority, ours: Files) -> None:
    def context(name: str) -> ssl.SSLContext:
        theirs = authority.issue(name, file=name, common_name=name)
        return trusting(authority, tls_cert=str(theirs.cert), tls_key=str(theirs.key))

    alice, bob = context("alice"), context("bob")
    async with secured(shown(ours, tls_client_ca=str(authority.path))) as it:
        async with client(it, alice) as connection:
            session_id = (await read(connection, session_epoch=0)).session_id
        assert session_id
        going_on = {"session_id": session_id, "session_epoch": 1, "topics": []}
        async with client(it, bob) as connection:
            response = await connection.call("fetch", 11, ask({}, **going_on))
            assert response.error_code == ErrorCode.fetch_session_id_not_found
        async with client(it, alice) as connection:
            response = await connection.call("fetch", 11, ask({}, **going_on))
            assert (response.error_code, response.session_id) == (0, session_id)


async def test_a_new_certificate_is_shown_to_the_next_client(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replace the certificate as in a mounted secret: by changing a link to a folder."""
    monkeypatch.setattr(files, "POLL_S", 0.05)
    link, mounted = tmp_path / "data", tmp_path / "secret"
    mounted.mkdir()
    for number, names in enumerate((["127.0.0.1"], ["elsewhere"])):
        folder = tmp_path / f"v{number}"
        folder.mkdir()
        issued = authority.issue(*names, file="new")
        (folder / "tls.crt").write_bytes(issued.cert.read_bytes())
        (folder / "tls.key").write_bytes(issued.key.read_bytes())
    link.symlink_to(tmp_path / "v0")
    for name in ("tls.crt", "tls.key"):
        (mounted / name).symlink_to(link / name)
    security = DownstreamSecurity(tls_cert=str(mounted / "tls.crt"), tls_key=str(mounted / "tls.key"))
    async with secured(security) as it, client(it, trusting(authority)) as before:
        assert (await read(before)).error_code == 0
        link.unlink()
        link.symlink_to(tmp_path / "v1")
        with trio.fail_after(5):
            while not it.logged("credentials-reloaded"):
                await trio.sleep(0.02)
        with pytest.raises(OSError, match="closed"):
            async with client(it, trusting(authority)) as connection:
                await read(connection)
        async with client(it, trusting(authority, tls_verify_host=False)) as connection:
            assert (await read(connection)).error_code == 0
        assert (await read(before)).error_code == 0


# ----------------------------------------------------------------------------------------------- the files


def test_a_half_written_pair_keeps_the_old_one_until_it_is_whole(authority: Authority, ours: Files) -> None:
    stream = io.StringIO()
    tls = server_context(shown(ours), Log("text", "debug", stream))
    assert tls is not None
    first, first_key = tls.value, ours.key.read_bytes()
    authority.issue("127.0.0.1", file="sidefetch")
    new_key = ours.key.read_bytes()

    ours.key.write_bytes(first_key)
    tls.refresh()
    assert tls.value is first
    assert "credentials-reload-failed" in stream.getvalue()
    tls.refresh()
    assert stream.getvalue().count("credentials-reload-failed") == 1

    ours.key.write_bytes(new_key)
    tls.refresh()
    assert tls.value is not first


def test_invalid_tls_files_are_reported_with_the_option_name(authority: Authority, ours: Files) -> None:
    other = authority.issue("x", file="other")
    locked = authority.issue("x", file="locked", password=b"secret")
    reported = {
        "listen-tls-cert": [
            DownstreamSecurity(tls_cert=str(ours.cert), tls_key=str(other.key)),
            DownstreamSecurity(tls_cert="/nowhere", tls_key=str(other.key)),
            shown(locked),
        ],
        "listen-tls-client-ca": [shown(ours, tls_client_ca=str(ours.key))],
        "listen-tls-key-password-file": [shown(locked, tls_key_password_file="/nowhere")],
    }

    for option, configs in reported.items():
        for config in configs:
            with pytest.raises(ConfigError, match=f"^{option}: "):
                server_context(config, Log("text", "debug", io.StringIO()))


async def test_a_token_file_that_is_not_there_is_a_broker_that_cannot_be_had() -> None:
    access = access_of(UpstreamSecurity(sasl="OAUTHBEARER", token_file="/nowhere"))
    assert access.login is not None
    with pytest.raises(BrokerUnavailable, match="upstream-sasl-token-file: /nowhere"):
        await access.login()


def test_watched_files_without_paths_keep_their_value_on_refresh() -> None:
    watched: WatchedFiles[int] = WatchedFiles("x", [None], lambda: 1)
    watched.refresh()
    assert watched.value == 1
