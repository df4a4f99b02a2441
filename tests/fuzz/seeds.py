"""Good messages to begin with: of every API and version that is read, with something in every field."""

import datetime
import random
import uuid
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from proxy.convert.versions.entities import OldRequest
from proxy.wire import messages
from proxy.wire.apis import KNOWN_KEYS, ApiKey, is_accepted
from proxy.wire.records import Codec
from tests.convert.logs import Record, batch, marker, message, wrapper
from tests.wire.entities import made

__all__ = [
    "empty",
    "filled",
    "full",
    "logs",
    "message_sets",
    "old_requests",
    "request_frames",
    "response_bodies",
    "versions",
]

_NEWEST = 20


def filled(kind: Any, items: int = 1) -> Any:
    """Return an entity with *items* in every array, and with values in optional fields."""
    hints = get_type_hints(kind)
    given = {}
    for field in fields(kind):
        if not field.name.startswith("__"):
            value = _value(hints[field.name], items)
            if value is not None:
                given[field.name] = value
    return made(kind, **given)


def _value(hint: Any, items: int) -> Any:
    options = [each for each in get_args(hint) if each is not type(None)]
    if type(None) in get_args(hint):
        hint = options[0] if len(options) == 1 else hint
    if get_origin(hint) is tuple:
        item = get_args(hint)[0]
        value = _value(item, items)
        return None if value is None else (value,) * items
    if hasattr(hint, "__dataclass_fields__"):
        return filled(hint, items)
    if hint is ErrorCode:
        return ErrorCode.none
    if hint is uuid.UUID:
        return uuid.UUID(int=7)
    if isinstance(hint, type) and issubclass(hint, bytes):
        return hint(b"some") if hint is bytes else hint.parse(b"some")  # type: ignore[attr-defined]  # kio's own
    if hint is float:
        return 1.5
    if isinstance(hint, type) and issubclass(hint, datetime.datetime):
        return hint.parse(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))  # type: ignore[attr-defined]
    if isinstance(hint, type) and issubclass(hint, datetime.timedelta):
        return hint.parse(datetime.timedelta(milliseconds=9))  # type: ignore[attr-defined]
    if isinstance(hint, type) and issubclass(hint, str):
        return hint("t")
    return None


def full(kind: Any, items: int) -> Any | None:
    """None where it has a field of a kind that is not filled here."""
    try:
        return filled(kind, items)
    except TypeError:
        return None


def empty(kind: Any) -> Any | None:
    try:
        return made(kind)
    except TypeError:
        return None


@cache
def versions(api_key: int) -> tuple[int, ...]:
    """That pass, and that kio knows."""
    return tuple(each for each in range(_NEWEST) if is_accepted(api_key, each) and _known(api_key, each))


def _known(api_key: int, version: int) -> bool:
    try:
        load_request_schema(api_key, version)
    except Exception:
        return False
    return True


def request_frames(client_id: str = "c") -> Iterator[bytes]:
    """Requests without their sizes: of every API the oldest and newest, of those that are read all versions."""
    for api_key in sorted(KNOWN_KEYS):
        known = versions(api_key)
        for version in known if api_key in (ApiKey.FETCH, ApiKey.PRODUCE) else {*known[:1], *known[-1:]}:
            kind: Any = load_request_schema(api_key, version)
            for entity in (empty(kind), full(kind, 1), full(kind, 3)):
                if entity is not None:
                    yield messages.request_frame(5, client_id, entity)[4:]


def old_requests() -> Iterator[tuple[int, int, bytes]]:
    """(API key, version, body) of requests in versions that are upgraded, by our own entities."""
    for kind in _all_of(OldRequest):
        for items in (0, 1, 3):
            if (entity := full(kind, items) if items else empty(kind)) is not None:
                yield int(kind.__api_key__), int(kind.__version__), messages.entity_bytes(entity)


def _all_of(kind: Any) -> Iterator[Any]:
    for each in kind.__subclasses__():
        if hasattr(each, "__api_key__"):
            yield each
        yield from _all_of(each)


def response_bodies(api_key: int, version: int) -> Iterator[bytes]:
    """Answers without sizes and headers."""
    kind: Any = load_response_schema(api_key, version)
    for items in (0, 1, 2):
        if (entity := full(kind, items) if items else empty(kind)) is not None:
            yield messages.entity_bytes(entity)


def _records(count: int, first: int = 5) -> list[Record]:
    chance = random.Random(count)
    return [
        Record(
            first + n, 1000 + n, None if n % 3 else b"k", chance.randbytes(n * 7 % 40), ((b"h", b"v"),) * (n % 2)
        )
        for n in range(count)
    ]


def _plain(count: int) -> list[Record]:
    return [Record(each.offset, each.time_ms, each.key, each.value) for each in _records(count)]


@cache
def message_sets() -> tuple[bytes, ...]:
    """Return message sets of old producers."""
    made_ = []
    for magic in (0, 1):
        plain = [Record(r.offset, r.time_ms if magic else -1, r.key, r.value) for r in _plain(5)]
        made_.append(b"".join(message(each, magic) for each in plain))
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4):
            made_.append(wrapper(plain, magic, codec))
            made_.append(wrapper(plain, magic, codec) + wrapper(plain, magic, codec))
            nested = wrapper(plain, magic, codec)
            made_.append(wrapper(plain, magic, codec, inner=nested))
        made_.append(wrapper(plain, magic, Codec.GZIP, inner=message(Record(0, -1, None, bytes(60_000)), magic)))
    return (b"", *made_)


@cache
def logs() -> tuple[bytes, ...]:
    """Return the logs of fetch responses."""
    made_ = [marker(5, 7, commits=False), batch([], base_offset=5, last_offset=9, records_bytes=b"")]
    for codec in Codec:
        made_.append(batch(_records(4), codec=codec))
        made_.append(batch(_records(3), codec=codec) + batch(_records(2, 8), codec=codec, append_ms=77))
        made_.append(batch(_records(3), codec=codec, producer_id=7) + marker(8, 7, commits=False))
        made_.append(batch([Record(5, 1, None, bytes(60_000))], codec=codec))
    return (*made_, *message_sets())
