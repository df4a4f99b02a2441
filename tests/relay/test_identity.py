"""The identity of a client from the login that it sends through, and its use on further connections."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from proxy.cluster.topology import BrokerId
from proxy.demo.messages import encode_request
from proxy.errors import BrokerUnavailable, ClientProtocolError
from proxy.relay.client import Sasl
from proxy.relay.commands import PASS, Command, LinkFrame, LinkLost, OpenLink, PrincipalChanged, Reply, Send
from proxy.sasl.logins import BearerLogin, PlainLogin
from proxy.wire import sasl
from proxy.wire.frames import with_size
from proxy.wire.headers import RequestHeader
from tests.pieces import joined
from tests.relay.logging_in import begun, from_broker
from tests.relay.playbook import Play, of_type
from tests.relay.solo import Solo

HANDSHAKE, AUTHENTICATE, FETCH = 17, 36, 1
PLAIN = b"\0alice\0secret"
BEARER = b"n,,\1auth=Bearer abc.def.\1\1"


def header(key: int, version: int, correlation_id: int = 1) -> RequestHeader:
    return RequestHeader(key, version, correlation_id, "c")


def from_client(play: Play, key: int, version: int, said: dict[str, Any]) -> list[Command]:
    return play.request(encode_request(key, version, 1, "c", said))


def answered(play: Play, key: int, version: int, **fields: Any) -> list[Command]:
    return play.handle(LinkFrame(PASS, memoryview(sasl.make_response(header(key, version), **fields))[4:]))


def logging_in(mechanism: str, error: ErrorCode = ErrorCode.none) -> tuple[Play, list[Command]]:
    play = Play()
    from_client(play, HANDSHAKE, 1, {"mechanism": mechanism})
    play.open(PASS)
    return play, answered(play, HANDSHAKE, 1, error_code=error, mechanisms=("PLAIN",))


def said(
    play: Play, message: bytes, answer: bytes = b"", error: ErrorCode = ErrorCode.none, version: int = 2
) -> list[Command]:
    reported = from_client(play, AUTHENTICATE, version, {"auth_bytes": message})
    fields: dict[str, Any] = {"error_code": error, "error_message": None, "auth_bytes": answer}
    return reported + answered(play, AUTHENTICATE, version, **fields)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_plain_is_repeated_once_the_broker_has_accepted_it(version: int) -> None:
    play, _ = logging_in("PLAIN")

    reported = said(play, PLAIN, version=version)

    assert of_type(PrincipalChanged, reported) == [
        PrincipalChanged("PLAIN:alice", "PLAIN", PlainLogin("alice", "secret"))
    ]


def test_a_token_is_repeated_and_its_holder_is_whoever_has_it() -> None:
    play, _ = logging_in("OAUTHBEARER")

    (reported,) = of_type(PrincipalChanged, said(play, BEARER))

    assert reported.login == BearerLogin("abc.def.")
    assert reported.principal.startswith("OAUTHBEARER:")
    assert "abc" not in reported.principal


@pytest.mark.parametrize(
    ("mechanism", "message", "answer", "error"),
    [
        ("PLAIN", PLAIN, b"", ErrorCode.sasl_authentication_failed),
        ("OAUTHBEARER", BEARER, b'{"status":"invalid_token"}', ErrorCode.none),
    ],
)
def test_login_that_the_broker_rejects_is_not_reused(
    mechanism: str, message: bytes, answer: bytes, error: ErrorCode
) -> None:
    play, _ = logging_in(mechanism)

    assert of_type(PrincipalChanged, said(play, message, answer, error)) == []


def test_a_raw_token_is_repeated_too() -> None:
    play = begun("PLAIN")
    play.request(with_size(PLAIN))

    reported = play.handle(LinkFrame(PASS, memoryview(b"")))

    assert of_type(PrincipalChanged, reported) == [
        PrincipalChanged("PLAIN:alice", "PLAIN", PlainLogin("alice", "secret"))
    ]


def test_renewed_login_keeps_the_first_principal() -> None:
    play, _ = logging_in("OAUTHBEARER")
    (first,) = of_type(PrincipalChanged, said(play, BEARER))
    from_client(play, HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
    answered(play, HANDSHAKE, 1, error_code=ErrorCode.none, mechanisms=())

    (second,) = of_type(PrincipalChanged, said(play, b"n,,\1auth=Bearer new\1\1"))

    assert second == PrincipalChanged(first.principal, "OAUTHBEARER", BearerLogin("new"))


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI", "NEW"])
def test_client_with_a_login_that_cannot_be_reused_stays_on_its_connection(mechanism: str) -> None:
    play, reported = logging_in(mechanism)

    assert of_type(PrincipalChanged, reported) == [PrincipalChanged("", mechanism, None)]
    for each in (b"n,,n=alice,r=x", b"c=biws,r=xy,p=q"):
        assert of_type(PrincipalChanged, said(play, each, b"r=xy")) == []
    passed = len(play.passed)
    commands = play.fetch({0: 5})
    assert len(play.passed) == passed + 1
    assert of_type(OpenLink, commands) == []


def test_where_such_a_connection_is_lost_the_client_is_too() -> None:
    """Check that an idle connection closed by the broker ends the client's: a new one would not be logged in."""
    play, _ = logging_in("SCRAM-SHA-256")
    said(play, b"n,,n=alice,r=x", b"r=xy")

    with pytest.raises(BrokerUnavailable):
        play.handle(LinkLost(PASS))


def test_a_client_of_0_9_that_begins_with_its_token_is_such_a_client() -> None:
    play = Play()

    assert of_type(PrincipalChanged, play.request(with_size(b"\x60\x82abc"))) == [
        PrincipalChanged("", "GSSAPI", None)
    ]


def test_unsupported_sasl_mechanism_sets_no_principal() -> None:
    _, reported = logging_in("SCRAM-SHA-256", ErrorCode.unsupported_sasl_mechanism)

    assert of_type(PrincipalChanged, reported) == []


def test_login_after_fetch_without_login_is_protocol_error() -> None:
    play = Play()
    play.fetch({0: 5})
    from_client(play, HANDSHAKE, 1, {"mechanism": "PLAIN"})
    play.open(PASS)
    answered(play, HANDSHAKE, 1, error_code=ErrorCode.none, mechanisms=("PLAIN",))

    with pytest.raises(ClientProtocolError, match="before it logged in"):
        said(play, PLAIN)


def playing(kind: Sasl) -> Play:
    play = Play()
    play.relay = Solo(BrokerId(1), play.map_address, play._reading, kind)
    return play


def test_fetch_without_required_login_is_protocol_error() -> None:
    with pytest.raises(ClientProtocolError, match="without having logged in"):
        playing(Sasl.REQUIRED).fetch({0: 5})


@pytest.mark.parametrize("size", [64 * 1024, 64 * 1024 + 1])
def test_login_of_over_64_kib_is_forwarded_but_not_kept_to_be_repeated(size: int) -> None:
    play, _ = logging_in("PLAIN")

    (change,) = of_type(PrincipalChanged, said(play, b"\0alice\0".ljust(size, b"x")))

    assert (change.login is not None) == (size == 64 * 1024)


def test_where_logins_are_ours_the_clients_go_nowhere() -> None:
    """They would be taken for renewals of ours."""
    play = playing(Sasl.OURS)

    for key, version, request in (
        (HANDSHAKE, 0, {"mechanism": "PLAIN"}),
        (HANDSHAKE, 1, {"mechanism": "PLAIN"}),
        (AUTHENTICATE, 2, {"auth_bytes": PLAIN}),
    ):
        reported = from_client(play, key, version, request)
        assert of_type(Send, reported) == []
        (reply,) = of_type(Reply, reported)
        body = sasl.read_response(header(key, version), memoryview(joined(reply.pieces))[4:])
        assert body.error_code == ErrorCode.illegal_sasl_state


def test_tokens_from_the_broker_reach_the_client_whoever_listens_in() -> None:
    play = begun("SCRAM-SHA-256")
    play.request(with_size(b"n,,n=user,r=x"))

    assert from_broker(play, b"r=xy") == [with_size(b"r=xy")]


@pytest.mark.parametrize("key", [HANDSHAKE, AUTHENTICATE])
def test_a_login_of_a_version_that_we_cannot_read_is_refused(key: int) -> None:
    play = Play()

    with pytest.raises(ClientProtocolError, match=f"API {key} v39 is not known"):
        play.request(with_size(bytes([0, key, 0, 39, 0, 0, 0, 1, 0, 1]) + b"c\0"))
