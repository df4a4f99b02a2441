"""kafka-python's messages of the old versions, which it wrote down on its own."""

import warnings
from typing import Any

__all__ = ["admin", "commit", "encoded", "group", "offset", "produce"]

with warnings.catch_warnings():
    # It brings an old copy of six, which Python 3.11 dislikes.
    warnings.simplefilter("ignore", ImportWarning)
    from kafka.protocol import admin, commit, group, offset, produce


def encoded(kind: Any, *fields: Any, **named: Any) -> bytes:
    """The body of a message."""
    message = kind(*fields, **named)  # it must outlive its method
    return bytes(message.encode())
