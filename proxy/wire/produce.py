"""Produce (API key 0): whether a request has a response, which a proxy must know; and the encoding of records."""

from collections.abc import Iterable

from proxy.wire.primitives import Cursor, write_uvarint

__all__ = ["is_answered", "keyed_records"]


def is_answered(version: int, cursor: Cursor) -> bool:
    """Return whether the broker answers a produce request; *cursor* stands behind the *client_id* of its header.

    With acks 0 there is no response, not even for an error: then the broker closes the connection.

    Layout: ``[tags v9+] [transactional_id: nullable string v3+] acks: i16 | ...``.
    """
    flexible = version >= 9
    if flexible:
        cursor.skip_tags()
    if version >= 3:
        cursor.nullable_string(flexible=flexible)
    return cursor.i16() != 0


def keyed_records(key: bytes, values: Iterable[bytes]) -> bytes:
    """Encode the records of a batch, uncompressed: each with *key*, without headers, all with the same timestamp.

    Layout: ``size varint | attributes i8 | time - base varlong | offset - base varint | key size varint | key |
            value size varint | value | header count varint``, each varint zigzag.
    """
    head = _varint(len(key)) + key
    records = []
    for offset, value in enumerate(values):
        body = b"".join((b"\0\0", _varint(offset), head, _varint(len(value)), value, b"\0"))
        records += [_varint(len(body)), body]
    return b"".join(records)


def _varint(value: int) -> bytes:
    return write_uvarint(value << 1)
