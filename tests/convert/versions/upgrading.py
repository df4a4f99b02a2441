"""One upgrade without a broker: old messages by kafka-python's layouts, new ones by kio's, neither of them ours."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from proxy.convert.versions.table import UPGRADES
from proxy.convert.versions.upgrade import Compute, SendToBroker, SendToCoordinator
from proxy.demo.messages import encode_request, encode_response, read_request, read_response

__all__ = ["Played", "answer", "asked", "play", "request"]

_REQUEST_HEADER_BYTES = 10
_RESPONSE_HEADER_BYTES = 4
_SIZE_BYTES = 4

Answer = Mapping[str, Any] | None


class Played:
    """The course of a request of an old version."""

    def __init__(self) -> None:
        self.steps: list[SendToBroker | SendToCoordinator | Compute] = []
        self.body: bytes | None = None
        """The body of the response."""

    @property
    def bodies(self) -> list[bytes]:
        """Return the bodies of the requests to any broker."""
        return [b"".join(each.body) for each in self.steps if not isinstance(each, Compute)]


def play(key: int, version: int, body: bytes, answers: Iterable[Answer] | Callable[[Any], Answer]) -> Played:
    """Take all steps; *answers* are the responses of a broker in turn, or a function of the request."""
    upgrade = UPGRADES[key, version]
    assert upgrade.steps is not None
    steps, played, came_back = upgrade.steps(memoryview(body)), Played(), None
    given = iter(answers) if not callable(answers) else None
    while True:
        try:
            step = steps.send(came_back)
        except StopIteration as done:
            played.body = None if done.value is None else b"".join(done.value)
            break
        played.steps.append(step)
        if isinstance(step, Compute):
            came_back = step.run()
        elif isinstance(step, SendToBroker) and not step.is_answered:
            came_back = None
        else:
            said = next(given) if given is not None else answers(asked(key, upgrade.to, b"".join(step.body)))  # type: ignore[operator]  # it is one or the other
            came_back = None if said is None else memoryview(answer(key, upgrade.to, said))
    assert given is None or next(given, None) is None, "not all answers were asked for"
    return played


def asked(key: int, version: int, body: bytes) -> Any:
    """A request's body as kio reads it."""
    header = key.to_bytes(2) + version.to_bytes(2) + bytes(4) + b"\xff\xff"
    frame = header + body
    read = read_request(frame)
    assert encode_request(key, version, 0, None, _said(read.body))[_SIZE_BYTES:] == frame, "it has bytes behind it"
    return read.body


def request(key: int, version: int, said: Mapping[str, Any]) -> bytes:
    """A request's body as kio writes it."""
    return encode_request(key, version, 0, None, said)[_SIZE_BYTES + _REQUEST_HEADER_BYTES :]


def answer(key: int, version: int, said: Mapping[str, Any]) -> bytes:
    """An answer's body as kio writes it."""
    return encode_response(key, version, 0, said)[_SIZE_BYTES + _RESPONSE_HEADER_BYTES :]


def decoded_response(key: int, version: int, body: bytes) -> Any:
    """An answer's body as kio reads it."""
    return read_response(key, version, bytes(_RESPONSE_HEADER_BYTES) + body)[1]


def _said(entity: Any) -> Any:
    if isinstance(entity, tuple):
        return tuple(map(_said, entity))
    names = getattr(entity, "__dataclass_fields__", None)
    return entity if names is None else {name: _said(getattr(entity, name)) for name in names}
