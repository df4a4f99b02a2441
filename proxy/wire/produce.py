"""Produce (API key 0), as far as a proxy must know it: whether it is answered."""

from proxy.wire.primitives import Cursor

__all__ = ["is_answered"]


def is_answered(version: int, cursor: Cursor) -> bool:
    """Whether the broker answers a produce request; *cursor* stands behind the *client_id* of its header.

    With acks 0 there is no answer, not even for an error: then the broker closes the connection.
    Layout: ``[tags v9+] [transactional_id: nullable string v3+] acks: i16 | ...``.
    """
    flexible = version >= 9
    if flexible:
        cursor.skip_tags()
    if version >= 3:
        cursor.nullable_string(flexible=flexible)
    return cursor.i16() != 0
