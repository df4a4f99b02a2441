"""Produce (API key 0): whether a broker responds to a request, and the encoding of records to be produced."""

from collections.abc import Iterable

from proxy.wire.primitives import Cursor, write_uvarint

__all__ = ["is_answered", "keyed_records"]


def is_answered(version: int, cursor: Cursor) -> bool:
    """Return whether the broker responds to a Produce request, which it does unless the request has acks 0.

    With acks 0 there is no response to an error either: then the broker closes the connection. *version* is that of
    the request; *cursor* must stand behind the client id of its header, and moves.

    Raises: MalformedFrame: the frame ends before the acks, or a field before them is impossible.

    Layout: ``[tags v9+] [transactional_id: nullable string v3+] acks: i16 | ...``.
    """
    flexible = version >= 9
    if flexible:
        cursor.skip_tags()
    if version >= 3:
        cursor.nullable_string(flexible=flexible)
    return cursor.i16() != 0


def keyed_records(key: bytes, values: Iterable[bytes]) -> bytes:
    """Encode a record for each of *values*, all with the same *key*: the part of a record batch behind its header.

    The records are of magic 2, uncompressed, without headers, and all have the batch's base timestamp. Callers
    compress them as needed, then call ``records.batch_of``.

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
