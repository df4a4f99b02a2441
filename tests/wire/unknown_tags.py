"""Serialise kio's entities as a newer peer might: with unknown tagged fields in every flexible struct.

KIP-482 lets a peer add tagged fields within a version; a reader must skip the tags that it does not know.
"""

import io
from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Final, get_args, get_origin, get_type_hints

from kio.serial._implicit_defaults import get_tagged_field_default
from kio.serial._serialize import get_field_writer
from kio.static.protocol import RequestPayload, ResponsePayload

from proxy.wire.frames import with_size
from proxy.wire.headers import RequestHeader, write_request_header
from proxy.wire.primitives import write_tags, write_uvarint

__all__ = ["TAGS", "UNKNOWN_FIELD", "UNKNOWN_TAG", "request_frame", "response_frame", "with_unknown_tags"]

UNKNOWN_TAG: Final = 4_711
"""No message of Kafka has such a tag."""
UNKNOWN_FIELD: Final = b"\xffunknown\0"
"""Bytes that are neither a count nor a string nor UTF-8."""
TAGS: Final = ((UNKNOWN_TAG, UNKNOWN_FIELD), (UNKNOWN_TAG + 1, b""))
"""The tagged fields that are put into every flexible struct."""


def with_unknown_tags(entity: Any, tags: Iterable[tuple[int, bytes]] = TAGS) -> bytes:
    """Serialise a kio *entity* with *tags* in every flexible struct, beside the tags that the struct has itself."""
    hints = get_type_hints(type(entity))
    added = list(tags)
    body, tagged = [], []
    for field in fields(entity):
        value, tag = getattr(entity, field.name), field.metadata.get("tag")
        if tag is None:
            body.append(_value(entity, field, hints[field.name], value, added))
        elif value != (field.default if field.default is not MISSING else get_tagged_field_default(field)):
            tagged.append((tag, _value(entity, field, hints[field.name], value, added)))
    return b"".join(body) + (write_tags(sorted(tagged + added)) if entity.__flexible__ else b"")


def _value(entity: Any, field: Any, hint: Any, value: Any, tags: list[tuple[int, bytes]]) -> bytes:
    options = get_args(hint)
    is_nullable = type(None) in options
    if is_nullable:
        (hint,) = (each for each in options if each is not type(None))
    flexible = entity.__flexible__
    if get_origin(hint) is tuple and is_dataclass(get_args(hint)[0]):
        if value is None:
            return b"\0" if flexible else b"\xff\xff\xff\xff"
        count = write_uvarint(len(value) + 1) if flexible else len(value).to_bytes(4)
        return count + b"".join(with_unknown_tags(each, tags) for each in value)
    if is_dataclass(hint):
        if value is None:
            return b"\xff"
        return (b"\1" if is_nullable and "tag" not in field.metadata else b"") + with_unknown_tags(value, tags)
    buffer = io.BytesIO()
    is_header = type(entity).__name__ == "RequestHeader"
    get_field_writer(field, flexible, is_request_header=is_header, is_tag="tag" in field.metadata)(buffer, value)
    return buffer.getvalue()


def response_frame(correlation_id: int, body: ResponsePayload) -> bytes:
    """Serialise a response with unknown tags, those of a flexible header too, and with the frame's size."""
    header: Any = body.__header_schema__
    return with_size(with_unknown_tags(header(correlation_id=correlation_id)) + with_unknown_tags(body))


def request_frame(correlation_id: int, client_id: str | None, body: RequestPayload) -> bytes:
    """Serialise a request with unknown tags, those of a flexible header too, and with the frame's size."""
    flexible = body.__flexible__
    header = RequestHeader(body.__api_key__, body.__version__, correlation_id, client_id)
    tags = write_tags(list(TAGS)) if flexible else b""
    return with_size(write_request_header(header, flexible=False) + tags + with_unknown_tags(body))
