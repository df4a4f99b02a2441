"""Replacement of error codes that a client's Fetch version does not have by those that an old broker would send."""

from types import MappingProxyType
from typing import Final

from proxy.errors import ErrorCode

__all__ = ["STALE_TOPOLOGY", "error_for"]

_LOOK_AGAIN: Final = ErrorCode.not_leader_or_follower

_SINCE: Final = MappingProxyType(
    {
        ErrorCode.kafka_storage_error: (6, _LOOK_AGAIN),
        ErrorCode.fenced_leader_epoch: (9, _LOOK_AGAIN),
        ErrorCode.unknown_leader_epoch: (9, _LOOK_AGAIN),
        ErrorCode.offset_not_available: (9, _LOOK_AGAIN),
        # Java up to 0.11 knows these two, and throws when a fetch answers with them.
        ErrorCode.replica_not_available: (6, _LOOK_AGAIN),
        ErrorCode.leader_not_available: (6, _LOOK_AGAIN),
        ErrorCode.unknown_topic_id: (13, ErrorCode.unknown_topic_or_partition),
        ErrorCode.inconsistent_topic_id: (13, ErrorCode.unknown_topic_or_partition),
        ErrorCode.offset_moved_to_tiered_storage: (14, ErrorCode.unknown_server_error),
    }
)
"""By error code: the first Fetch version that has it, and the code that replaces it in older versions."""

_FROM_OLD_BROKERS: Final = frozenset(
    {
        ErrorCode.unknown_server_error,
        ErrorCode.none,
        ErrorCode.offset_out_of_range,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_leader_or_follower,
        ErrorCode.topic_authorization_failed,
        # The codes below make most of these clients raise: they are for errors that no retry can resolve.
        ErrorCode.corrupt_message,
        ErrorCode.unsupported_version,
        ErrorCode.unsupported_compression_type,
    }
)
"""The error codes that clients of Fetch below v4 may get. With others, poll() of Java's up to 1.1 throws."""
_LIMITED_BELOW: Final = 4

STALE_TOPOLOGY: Final = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.replica_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    }
)
"""Errors after which Java's consumer refreshes metadata; and UNKNOWN_LEADER_EPOCH, as Sidefetch adds epochs."""


def error_for(version: int, code: int) -> int:
    """Return the error *code*, or its replacement for clients of Fetch *version* that cannot handle it.

    The replacement is the code that older brokers sent, or else UNKNOWN_SERVER_ERROR. UNSUPPORTED_VERSION and
    UNSUPPORTED_COMPRESSION_TYPE are never replaced: no retry can help.
    """
    if code in _SINCE:
        since, older = _SINCE[ErrorCode(code)]
        code = code if version >= since else older
    is_known = version >= _LIMITED_BELOW or code in _FROM_OLD_BROKERS
    return code if is_known else ErrorCode.unknown_server_error
