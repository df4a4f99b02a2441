"""Connections on which a client logs in."""

from proxy.demo.messages import encode_request, encode_response
from proxy.relay.commands import PASS, Command, LinkFrame, Reply
from proxy.wire.frames import with_size
from tests.pieces import joined
from tests.relay.playbook import Play, of_type

__all__ = ["HANDSHAKE", "METADATA", "begun", "from_broker", "handshake", "offered", "replies"]

HANDSHAKE, METADATA = 17, 3


def handshake(mechanism: str, *, version: int = 0) -> bytes:
    return encode_request(HANDSHAKE, version, 1, "c", {"mechanism": mechanism})


def offered(error: int = 0) -> bytes:
    """The broker's answer to it, without its size."""
    return encode_response(HANDSHAKE, 0, 1, {"error_code": error, "mechanisms": ["PLAIN"]})[4:]


def replies(commands: list[Command]) -> list[bytes]:
    return [reported for reply in of_type(Reply, commands) if (reported := joined(reply.pieces))]


def from_broker(play: Play, payload: bytes) -> list[bytes]:
    return replies(play.handle(LinkFrame(PASS, memoryview(payload))))


def begun(mechanism: str) -> Play:
    play = Play()
    play.request(handshake(mechanism))
    play.open(PASS)
    assert from_broker(play, offered()) == [with_size(offered())]
    return play
