"""SaslHandshake v0, and tokens in frames without a header behind it."""

import struct

import pytest

from proxy.demo.messages import encode_request, encode_response
from proxy.errors import BrokerProtocolError, ClientProtocolError
from proxy.relay.commands import PASS
from proxy.wire.frames import with_size
from tests.relay.logging_in import METADATA, begun, from_broker, handshake, offered, replies
from tests.relay.playbook import Play


def metadata(correlation_id: int) -> bytes:
    return encode_request(METADATA, 1, correlation_id, "c", {"topics": []})


def is_served(play: Play) -> None:
    """The client sends requests again, and they are read as such."""
    play.request(metadata(7))
    answer = encode_response(METADATA, 1, 7, {"controller_id": -1})
    assert play.passed[-1] == metadata(7)
    assert from_broker(play, answer[4:]) == [answer]


TOKENS: dict[str, list[tuple[bytes, bytes | None]]] = {
    "PLAIN": [(b"\0user\0secret", b"")],
    "SCRAM-SHA-256": [(b"n,,n=user,r=x", b"r=xy,s=z,i=4096"), (b"c=biws,r=xy,p=q", b"v=w")],
    "SCRAM-SHA-512": [(b"n,,n=user,r=x", b"r=xy,s=z,i=4096"), (b"c=biws,r=xy,p=q", b"v=w")],
    "OAUTHBEARER": [(b"n,,\1auth=Bearer x\1\1", b"")],
    "GSSAPI": [(b"\x60\x82abc", b"\x60tok"), (b"", b"\x05\x04abcdefgh"), (b"\x05\x04abcdefgh", None)],
}


@pytest.mark.parametrize("mechanism", TOKENS)
def test_tokens_pass_both_ways_as_they_are_and_requests_follow(mechanism: str) -> None:
    play = begun(mechanism)

    for mine, the_brokers in TOKENS[mechanism]:
        assert replies(play.request(with_size(mine))) == []
        assert play.passed[-1] == with_size(mine)
        if the_brokers is not None:
            assert from_broker(play, the_brokers) == [with_size(the_brokers)]

    is_served(play)


@pytest.mark.parametrize("user", ["0name", "\x12", "$", "\x03\0\0\0\0\0\0\0"])
def test_a_token_that_looks_like_a_request_is_a_token(user: str) -> None:
    """PLAIN begins with a zero byte and the user's name; the second byte of an API's key may be a letter."""
    play = begun("PLAIN")
    token = b"\0" + user.encode() + b"\0secret"

    play.request(with_size(token))

    assert play.passed[-1] == with_size(token)
    assert from_broker(play, b"") == [with_size(b"")]
    is_served(play)


def test_request_pipelined_after_a_token_gets_its_own_response() -> None:
    play = begun("PLAIN")
    play.request(with_size(b"\0user\0secret"))
    play.request(metadata(7))
    answer = encode_response(METADATA, 1, 7, {"controller_id": -1})

    assert from_broker(play, b"") == [with_size(b"")]
    assert from_broker(play, answer[4:]) == [answer]


def test_client_token_after_an_error_response_is_forwarded() -> None:
    play = begun("OAUTHBEARER")
    play.request(with_size(b"n,,\1auth=Bearer x\1\1"))
    from_broker(play, b'{"status":"invalid_token"}')

    play.request(with_size(b"\1"))

    assert play.passed[-1] == with_size(b"\1")


def test_after_a_refusal_no_tokens_are_expected() -> None:
    play = Play()
    play.request(handshake("SCRAM-SHA-256"))
    play.open(PASS)
    assert from_broker(play, offered(33)) == [with_size(offered(33))]

    play.request(handshake("PLAIN"))
    assert from_broker(play, offered()) == [with_size(offered())]
    play.request(with_size(b"\0user\0secret"))
    from_broker(play, b"")
    is_served(play)


def test_tokens_within_requests_are_none() -> None:
    play = Play()
    play.request(handshake("PLAIN", version=1))
    play.open(PASS)
    from_broker(play, offered())

    with pytest.raises(ClientProtocolError):
        play.request(with_size(b"\0user\0secret"))


@pytest.mark.parametrize("first", [b"\0\1", b"\0A", b"n,"])
def test_token_of_over_512_kib_is_refused_even_if_it_looks_like_a_request(first: bytes) -> None:
    play = begun("PLAIN")

    with pytest.raises(ClientProtocolError, match="a SASL token of 524289 bytes, 524288 are allowed"):
        play.request(with_size(first.ljust(512 * 1024 + 1, b"x")))


def test_once_requests_have_come_no_tokens_do() -> None:
    play = begun("GSSAPI")
    play.request(with_size(b"\x60\x82abc"))
    from_broker(play, b"\x60tok")
    is_served(play)

    with pytest.raises(ClientProtocolError):
        play.request(with_size(b"\x60\x82abc" + bytes(8)))


def test_a_client_of_0_9_begins_with_its_token() -> None:
    play = Play()
    play.request(with_size(b"\x60\x82abc"))
    play.open(PASS)

    assert play.passed == [with_size(b"\x60\x82abc")]
    assert from_broker(play, b"\x60tok") == [with_size(b"\x60tok")]
    is_served(play)


def test_other_rubbish_at_the_beginning_is_none() -> None:
    with pytest.raises(ClientProtocolError):
        Play().request(with_size(struct.pack(">hhih", 9999, 0, 0, -1)))


@pytest.mark.parametrize("size", [4, 5])
def test_truncated_handshake_response_is_a_broker_protocol_error(size: int) -> None:
    play = Play()
    play.request(handshake("PLAIN"))
    play.open(PASS)

    with pytest.raises(BrokerProtocolError, match="malformed answer to API 17"):
        from_broker(play, offered()[:size])
