"""Login messages to brokers and from clients."""

import base64
import json

import pytest

from proxy.errors import LoginRefused, MalformedFrame
from proxy.sasl.logins import BearerLogin, PlainLogin, ScramLogin, decode_bearer, decode_plain


def test_plain_login_sends_credentials_in_a_single_message() -> None:
    talk = PlainLogin("alice", "secret").start_conversation("x")

    assert next(talk) == b"\0alice\0secret"
    with pytest.raises(StopIteration):
        talk.send(b"")


def test_refused_token_is_acknowledged_and_reported() -> None:
    talk = BearerLogin("abc").start_conversation("x")

    assert next(talk) == b"n,,\1auth=Bearer abc\1\1"
    assert talk.send(b'{"status":"invalid_token"}') == b"\1"
    with pytest.raises(LoginRefused, match="invalid_token"):
        talk.send(b"")


def test_an_accepted_token_needs_nothing_more() -> None:
    talk = BearerLogin("abc").start_conversation("x")
    next(talk)

    with pytest.raises(StopIteration):
        talk.send(b"")


@pytest.mark.parametrize(
    "login", [PlainLogin("alice", "s3cret"), ScramLogin("SCRAM-SHA-256", "alice", "s3cret"), BearerLogin("s3cret")]
)
def test_no_secret_is_shown(login: object) -> None:
    assert "s3cret" not in repr(login)


def test_decoded_plain_credentials_are_resent_unchanged() -> None:
    user, login = decode_plain(b"\0alice\0sec,ret")

    assert (user, next(login.start_conversation("x"))) == ("alice", b"\0alice\0sec,ret")


@pytest.mark.parametrize(
    "message", [b"", b"alice", b"\0alice", b"\0\0x", b"\0a\0", b"a\0b\0c", b"\0a\0b\0c", b"\0\xff\0x"]
)
def test_malformed_plain_message_is_rejected(message: bytes) -> None:
    with pytest.raises(MalformedFrame):
        decode_plain(message)


def test_bearer_names_are_distinct_and_do_not_contain_the_token() -> None:
    token = base64.urlsafe_b64encode(json.dumps({"sub": "alice"}).encode()).decode()
    name, login = decode_bearer(f"n,a=alice,\1auth=Bearer {token}\1ext=1\1\1".encode())
    other, _ = decode_bearer(f"n,,\1auth=bearer {token}x\1\1".encode())

    assert login == BearerLogin(token)
    assert name != other
    assert token not in name


@pytest.mark.parametrize(
    "message", [b"", b"n,,", b"n,,\1auth=Basic x\1\1", b"x\1auth=Bearer x\1\1", b"n,,\1auth=Bearer \xff\1\1"]
)
def test_malformed_bearer_message_is_rejected(message: bytes) -> None:
    with pytest.raises(MalformedFrame):
        decode_bearer(message)
