"""SCRAM, held against the RFC's own exchange and against itself."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import LoginRefused, MalformedFrame
from proxy.sasl.scram import HASHES, ScramClient, ScramKeys, ScramServer

NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SIGNATURE = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def client() -> ScramClient:
    return ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE)


def test_the_exchange_of_rfc_7677_is_ours() -> None:
    scram = client()

    assert scram.first_message() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert scram.final_message(CHALLENGE) == PROOF
    scram.verify_server(SIGNATURE)


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (CHALLENGE.replace(b"r=rO", b"r=xO"), "another login"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "another login"),
        (CHALLENGE.replace(b"4096", b"4095"), "iterations"),
        (CHALLENGE.replace(b"4096", b"100001"), "iterations"),
        (CHALLENGE.replace(b"4096", b"x"), "cannot be read"),
        (CHALLENGE.replace(b"s=W", b"s=!"), "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"e=unknown-user", "unknown-user"),
    ],
)
def test_invalid_or_unsafe_challenge_is_rejected(challenge: bytes, why: str) -> None:
    scram = client()
    scram.first_message()

    with pytest.raises(LoginRefused, match=why):
        scram.final_message(challenge)


@pytest.mark.parametrize(
    "final",
    [SIGNATURE.replace(b"6", b"7", 1), b"", b"v=", "v=é".encode(), b"v=\xff", b"e=invalid-proof"],
)
def test_a_server_that_does_not_know_the_password_is_not_believed(final: bytes) -> None:
    scram = client()
    scram.first_message()
    scram.final_message(CHALLENGE)

    with pytest.raises(LoginRefused):
        scram.verify_server(final)


def test_a_server_cannot_be_believed_before_the_proof() -> None:
    with pytest.raises(LoginRefused):
        client().verify_server(b"v=")


def talk(mechanism: str, user: str, password: str, keys: ScramKeys) -> bytes | None:
    ours, theirs = ScramClient(mechanism, user, password, "abc"), ScramServer(mechanism, "def")
    assert theirs.read_user(ours.first_message()) == user
    signature = theirs.verify_proof(ours.final_message(theirs.make_challenge(keys)))
    if signature is not None:
        ours.verify_server(signature)
    return signature


@settings(max_examples=10, deadline=None)
@given(
    st.sampled_from(sorted(HASHES)),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1),
    st.text(st.characters(codec="utf-8"), min_size=1),
)
def test_both_sides_agree_about_any_name_and_password(mechanism: str, user: str, password: str) -> None:
    keys = ScramKeys.derive(mechanism, password, b"salt", 4096)

    assert talk(mechanism, user, password, keys) is not None
    assert talk(mechanism, user, password + "x", keys) is None


@pytest.mark.parametrize(
    "message", [b"", b"n,,", b"n,,n=a", b"n,,r=x", b"p=tls-unique,,n=a,r=x", b"n,a=b,n=a,r=x", b"\xff"]
)
def test_a_first_message_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(MalformedFrame):
        ScramServer("SCRAM-SHA-256", "def").read_user(message)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"c=biws,r=abcdef",
        b"c=biws,r=abcdef,p=!",
        "c=biws,r=abcdef,p=é".encode(),
        b"c=biws,r=other,p=" + PROOF[-44:],
        PROOF,
    ],
)
def test_a_last_message_that_is_none_is_refused(message: bytes) -> None:
    server = ScramServer("SCRAM-SHA-256", "def")
    server.read_user(b"n,,n=user,r=abc")
    server.make_challenge(ScramKeys.derive("SCRAM-SHA-256", "x", b"salt", 4096))

    with pytest.raises(MalformedFrame):
        server.verify_proof(message)


def test_no_key_is_shown() -> None:
    keys = ScramKeys.derive("SCRAM-SHA-256", "x", b"salt", 4096)

    assert repr(keys) == "ScramKeys(salt=b'salt', iterations=4096)"
