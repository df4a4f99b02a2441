"""JoinGroup (API key 11) v0 and v1, which all Kafka releases but 4.0.0 serve (KAFKA-19444).

They are upgraded to v2 and not further: from v4 on, a member without an id must join again with one.
"""

import struct
from collections.abc import Callable
from functools import partial
from typing import Final

from kio.schema.errors import ErrorCode

from proxy.convert.versions.entities import Code, up_to
from proxy.convert.versions.upgrade import Pieces, Upgrade, upgrade_once
from proxy.wire.apis import ApiKey
from proxy.wire.primitives import Cursor

__all__ = ["LIFTS"]

_THROTTLE_BYTES: Final = 4
_I16: Final = struct.Struct(">h")


def _with_rebalance_timeout(body: memoryview) -> Pieces:
    """Add v1's rebalance timeout, which is the session timeout in v0.

    Layout v0: ``group_id: string | session_timeout: i32 | rest``; v1 has ``rebalance_timeout: i32`` in between.
    """
    cursor = Cursor(body)
    cursor.string(flexible=False)
    start = cursor.at
    cursor.i32()
    return [body[: cursor.at], body[start:]]


def _as_it_is(body: memoryview) -> Pieces:
    return [body]


def _lowered(code: Code, answer: memoryview) -> Pieces:
    """Remove the throttle time and map the error code.

    Layout v2: ``throttle_time: i32 | error_code: i16 | rest``.
    """
    cursor = Cursor(answer, _THROTTLE_BYTES)
    told = cursor.i16()
    try:
        lowered = code(ErrorCode(told))
    except ValueError:
        lowered = ErrorCode.unknown_server_error
    return [_I16.pack(lowered), answer[cursor.at :]]


def _lift(version: int, newest: ErrorCode, lift: Callable[[memoryview], Pieces], adds: str) -> Upgrade:
    steps = upgrade_once(lift, partial(_lowered, up_to(newest)))
    return Upgrade("JoinGroup", ApiKey.JOIN_GROUP, version, 2, adds, "nothing", steps)


LIFTS: Final = (
    _lift(
        0, ErrorCode.unsupported_version, _with_rebalance_timeout, "the session timeout as the rebalance timeout"
    ),
    _lift(1, ErrorCode.policy_violation, _as_it_is, "nothing"),
)
