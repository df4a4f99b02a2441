"""JoinGroup (API key 11) v0 and v1, which all Kafka releases but 4.0.0 serve (KAFKA-19444).

They are upgraded to v2 and not further: from v4 on, a member without an id must join again with one.
"""

import struct
from collections.abc import Callable
from functools import partial
from typing import Final

from kio.schema.errors import ErrorCode

from proxy.convert.versions.entities import Code, limit_codes
from proxy.convert.versions.upgrade import Pieces, Upgrade, upgrade_once
from proxy.wire.apis import ApiKey
from proxy.wire.primitives import Cursor

__all__ = ["UPGRADES"]

_THROTTLE_BYTES: Final = 4
_I16: Final = struct.Struct(">h")


def _add_rebalance_timeout(body: memoryview) -> Pieces:
    """Add v1's rebalance timeout, which is the session timeout in v0.

    Layout v0: ``group_id: string | session_timeout: i32 | rest``; v1 has ``rebalance_timeout: i32`` in between.
    """
    cursor = Cursor(body)
    cursor.string(flexible=False)
    start = cursor.at
    cursor.i32()
    return [body[: cursor.at], body[start:]]


def _keep_body(body: memoryview) -> Pieces:
    return [body]


def _downgrade_response(code: Code, answer: memoryview) -> Pieces:
    """Remove the throttle time and map the error code.

    Layout v2: ``throttle_time: i32 | error_code: i16 | rest``.
    """
    cursor = Cursor(answer, _THROTTLE_BYTES)
    number = cursor.i16()
    try:
        known = code(ErrorCode(number))
    except ValueError:
        known = ErrorCode.unknown_server_error
    return [_I16.pack(known), answer[cursor.at :]]


def _make_upgrade(version: int, newest: ErrorCode, upgrade: Callable[[memoryview], Pieces], adds: str) -> Upgrade:
    steps = upgrade_once(upgrade, partial(_downgrade_response, limit_codes(newest)))
    return Upgrade("JoinGroup", ApiKey.JOIN_GROUP, version, 2, adds, "nothing", steps)


UPGRADES: Final = (
    _make_upgrade(
        0, ErrorCode.unsupported_version, _add_rebalance_timeout, "the session timeout as the rebalance timeout"
    ),
    _make_upgrade(1, ErrorCode.policy_violation, _keep_body, "nothing"),
)
