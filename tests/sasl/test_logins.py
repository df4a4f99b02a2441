"""Login messages to brokers and from clients."""

import base64
import json

import pytest

from proxy.errors import LoginRefused, MalformedFrame
from proxy.sasl.logins import BearerLogin, PlainLogin, ScramLogin, decode_bearer, decode_plain


def test_plain_is_said_at_once_and_nothing_is_expected() -> None:
    talk = PlainLogin("alice", "secret").start_conversation("x")

    assert next(talk) == b"\0alice\0secret"
    with pytest.raises(StopIteration):
        talk.send(b"")


def test_a_refused_token_is_told_and_the_broker_let_go() -> None:
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


def test_what_a_client_says_in_plain_is_what_is_said_again() -> None:
    user, login = decode_plain(b"\0alice\0sec,ret")

    assert (user, next(login.start_conversation("x"))) == ("alice", b"\0alice\0sec,ret")


@pytest.mark.parametrize(
    "message", [b"", b"alice", b"\0alice", b"\0\0x", b"\0a\0", b"a\0b\0c", b"\0a\0b\0c", b"\0\xff\0x"]
)
def test_what_is_not_plain_is_refused(message: bytes) -> None:
    with pytest.raises(MalformedFrame):
        decode_plain(message)


def test_tokens_are_told_apart_and_not_told() -> None:
    token = base64.urlsafe_b64encode(json.dumps({"sub": "alice"}).encode()).decode()
    name, login = decode_bearer(f"n,a=alice,\1auth=Bearer {token}\1ext=1\1\1".encode())
    other, _ = decode_bearer(f"n,,\1auth=bearer {token}x\1\1".encode())

    assert login == BearerLogin(token)
    assert name != other
    assert token not in name


@pytest.mark.parametrize(
    "message", [b"", b"n,,", b"n,,\1auth=Basic x\1\1", b"x\1auth=Bearer x\1\1", b"n,,\1auth=Bearer \xff\1\1"]
)
def test_what_is_not_a_token_is_refused(message: bytes) -> None:
    with pytest.raises(MalformedFrame):
        decode_bearer(message)
