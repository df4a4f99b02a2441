"""The SASL server: authentication of clients by Sidefetch, before any other request."""

import random
import secrets
import struct
from collections.abc import Awaitable, Callable
from typing import Final

import attrs
import trio
from kio.schema.errors import ErrorCode

from proxy.errors import ClientProtocolError, ConfigError, MalformedFrame
from proxy.net.io.files import WatchedFiles
from proxy.net.io.logs import Log
from proxy.net.io.sockets import FrameSocket
from proxy.sasl.logins import decode_plain
from proxy.sasl.scram import HASHES, ScramServer
from proxy.sasl.users import Users
from proxy.wire import api_versions, sasl
from proxy.wire.apis import ApiKey, is_accepted
from proxy.wire.headers import RequestHeader, read_request_header

__all__ = ["AuthenticatedClient", "AuthenticationFailed", "authenticate", "watch_users"]

_SIZE: Final = struct.Struct(">i")
_LOGIN_S: Final = 30.0
"""The time limit of the whole login: as long as Kafka's clients wait for a response."""
_MOST_BYTES: Final = 64 * 1024
"""The size limit of frames before the login; Kafka's sasl.server.max.receive.size is half a MB."""
_REFUSED_S: Final = (1.0, 1.5)
"""The delay of a refusal in seconds, so that guessing takes time; each connection can try once."""
_NONCE_BYTES: Final = 18

Versions = Callable[[memoryview], Awaitable[bytes]]
"""Returns the response to a client's ApiVersions request; the response has its size prefix, the request has not."""


class AuthenticationFailed(ClientProtocolError):
    """A login of a client with Sidefetch that failed because the user name or the password is wrong."""


@attrs.frozen
class AuthenticatedClient:
    """A client that has logged in with Sidefetch: its principal, and the requests that arrived during the login."""

    principal: str
    """The user name after ``user:``."""
    early: list[memoryview]
    """Frames that arrived together with the last message of the login, and are not handled yet."""


def watch_users(path: str | None, log: Log) -> WatchedFiles[Users] | None:
    """Return the users in the file at *path*, to be reloaded when the file changes; None without a path.

    The caller runs the result, so that changes are noticed.

    Raises: ConfigError: the file cannot be read, or has the wrong format.
    """
    if path is None:
        return None

    def load() -> Users:
        try:
            with open(path, encoding="utf-8") as file:
                return Users.parse(file.read())
        except (OSError, ValueError) as wrong:
            why = wrong.strerror if isinstance(wrong, OSError) else wrong
            raise ConfigError(f"listen-sasl-file: {path}: {why}; accepted: lines as sidefetch user makes") from None

    return WatchedFiles("listen-sasl", [path], load, log)


async def authenticate(
    client: FrameSocket, users: Users, versions: Versions, limit_bytes: int
) -> AuthenticatedClient:
    """Receive and answer the client's requests until it has logged in by SASL as one of *users*.

    The client may use PLAIN and those SCRAM mechanisms for which there are users. It may send ApiVersions before,
    which *versions* answers, but no other request. Frames are limited to 64 KiB until the login is complete, and
    to *limit_bytes* from then on.

    Raises: AuthenticationFailed: the user name or the password is wrong; ClientProtocolError: a request is
        malformed or not allowed, the client closed the connection, or the login took over 30 s; BrokerUnavailable,
        BrokerProtocolError: *versions* raised it.
    """
    client.set_limit(_MOST_BYTES)
    try:
        with trio.fail_after(_LOGIN_S):
            admitted = await _SaslServer(client, users, versions).run_login()
    except trio.TooSlowError:
        raise ClientProtocolError(f"it has not logged in within {_LOGIN_S:g} s") from None
    except MalformedFrame as wrong:
        raise ClientProtocolError(f"malformed login: {wrong}") from wrong
    except OSError as gone:
        raise ClientProtocolError("it went away without a login") from gone
    client.set_limit(limit_bytes)
    return admitted


class _SaslServer:
    def __init__(self, client: FrameSocket, users: Users, versions: Versions) -> None:
        self._client = client
        self._users = users
        self._versions = versions
        self._mechanism = ""
        self._takes_tokens = False
        """Whether the frames are SASL messages without a request header, as after SaslHandshake v0."""
        self._scram: ScramServer | None = None
        self._user = ""

    async def run_login(self) -> AuthenticatedClient:
        while frames := await self._client.receive():
            while frames:
                if await self._handle_frame(frames.pop(0)):
                    return AuthenticatedClient(f"user:{self._user}", frames)
        raise ClientProtocolError("it went away without a login")

    async def _handle_frame(self, frame: memoryview) -> bool:
        if self._takes_tokens:
            return await self._handle_token(frame)
        header, _ = read_request_header(frame)
        key, version = header.api_key, header.api_version
        if key == ApiKey.API_VERSIONS:
            known = is_accepted(key, version)
            await self._send(
                await self._versions(frame)
                if known
                else api_versions.unsupported_version_response(header.correlation_id)
            )
        elif key == ApiKey.SASL_HANDSHAKE and version in (0, 1):
            await self._handshake(header, frame)
        elif key == ApiKey.SASL_AUTHENTICATE and self._mechanism and version in (0, 1, 2):
            return await self._authenticate(header, frame)
        else:
            raise ClientProtocolError(f"API {key} v{version} before a login: have it use SASL (sasl.mechanism)")
        return False

    async def _handshake(self, header: RequestHeader, frame: memoryview) -> None:
        mechanism, offered = str(sasl.read_request(header, frame).mechanism), self._users.mechanisms
        is_accepted = mechanism in offered
        await self._send(sasl.handshake_response(header, offered, is_accepted=is_accepted))
        if not is_accepted:
            raise ClientProtocolError(f"it asks for {mechanism[:40]!r}, and there is {', '.join(offered)}")
        self._mechanism, self._takes_tokens = mechanism, header.api_version == 0
        self._scram = None

    async def _authenticate(self, header: RequestHeader, frame: memoryview) -> bool:
        try:
            answer, is_last = await self._check_message(bytes(sasl.read_request(header, frame).auth_bytes))
        except AuthenticationFailed as refused:
            why = "Authentication failed: invalid credentials"
            await self._send(sasl.error_response(header, ErrorCode.sasl_authentication_failed, why))
            raise refused
        await self._send(sasl.authenticate_response(header, answer))
        return is_last

    async def _handle_token(self, frame: memoryview) -> bool:
        answer, is_last = await self._check_message(bytes(frame))
        await self._send(_SIZE.pack(len(answer)) + answer)
        return is_last

    async def _check_message(self, message: bytes) -> tuple[bytes, bool]:
        """Return the response to a SASL message, and whether the login is complete.

        Raises: AuthenticationFailed: after a delay, so that guessing passwords takes time.
        """
        if self._mechanism not in HASHES:
            self._user, login = decode_plain(message)
            is_right = await trio.to_thread.run_sync(self._users.is_password_right, self._user, login.password)
            answer: bytes | None = b"" if is_right else None
        elif self._scram is None:
            self._scram = ScramServer(self._mechanism, secrets.token_urlsafe(_NONCE_BYTES))
            self._user = self._scram.read_user(message)
            return self._scram.make_challenge(self._users.keys_of(self._user, self._mechanism)), False
        else:
            answer = self._scram.verify_proof(message)
            if (self._user, self._mechanism) not in self._users.keys:
                answer = None
        if answer is None:
            await trio.sleep(random.uniform(*_REFUSED_S))
            raise AuthenticationFailed(f"{self._mechanism} with a wrong name or password")
        return answer, True

    async def _send(self, framed: bytes) -> None:
        await self._client.send([framed])
