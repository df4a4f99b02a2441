"""Stand-in until the conversion of message sets is merged."""

from proxy.errors import ErrorCode, ProxyError

__all__ = ["Unconvertible", "to_batches"]


class Unconvertible(ProxyError):
    def __init__(self, code: ErrorCode, why: str = "") -> None:
        super().__init__(why)
        self.code = code


def to_batches(message_set: memoryview, *, max_batch_bytes: int) -> tuple[bytes, ...]:  # noqa: ARG001
    raise Unconvertible(ErrorCode.unknown_server_error, "not merged yet")
