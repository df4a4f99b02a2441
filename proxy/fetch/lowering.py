"""Error codes that a client's Fetch version cannot know become those that an old broker would have sent."""

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
"""Code: the first version that knows it, and what older ones get."""

_FROM_OLD_BROKERS: Final = frozenset(
    {
        ErrorCode.unknown_server_error,
        ErrorCode.none,
        ErrorCode.offset_out_of_range,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_leader_or_follower,
        ErrorCode.topic_authorization_failed,
        # What follows makes most of these clients raise, so it is told only of what no retry mends.
        ErrorCode.corrupt_message,
        ErrorCode.unsupported_version,
        ErrorCode.unsupported_compression_type,
    }
)
"""What clients of Fetch below v4 may be told. Java's up to 1.1 throw from poll() at anything else."""
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
"""What Java's consumer refreshes its metadata for, and UNKNOWN_LEADER_EPOCH, which may be our mistake."""


def error_for(version: int, code: int) -> int:
    """*code* as a client of Fetch *version* can understand it."""
    if code in _SINCE:
        since, older = _SINCE[ErrorCode(code)]
        code = code if version >= since else older
    is_known = version >= _LIMITED_BELOW or code in _FROM_OLD_BROKERS
    return code if is_known else ErrorCode.unknown_server_error
