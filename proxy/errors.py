"""The errors that this package raises on purpose; the class names the party at fault."""

from collections.abc import Iterator

from kio.schema.errors import ErrorCode

__all__ = [
    "BadRecords",
    "BrokerProtocolError",
    "BrokerUnavailable",
    "ClientProtocolError",
    "ConfigError",
    "ErrorCode",
    "FrameTooLarge",
    "LimitReached",
    "LocalProtocolError",
    "LoginRefused",
    "MalformedFrame",
    "ProtocolError",
    "ProxyError",
    "SparkFailed",
    "leaves",
]


class ProxyError(Exception):
    """The base class of all errors that this package raises on purpose."""


class ConfigError(ProxyError):
    """Settings or flags that are wrong; the command does not start, and ``cli`` exits with code 2.

    Each argument is a message about one problem: the option, its value and the accepted values.
    """


class BrokerUnavailable(ProxyError):
    """A broker that cannot be reached, or that closed the connection; the client gets a retriable error."""


class LoginRefused(BrokerUnavailable):
    """A failed login at a broker: the broker refuses Sidefetch, or Sidefetch cannot verify the broker.

    The message contains the remedy. A retry with the same settings fails again.
    """


class LimitReached(ProxyError):
    """A client that exceeds a limit; Sidefetch closes its connection and logs one line."""

    def __init__(self, limit: str, why: str) -> None:
        super().__init__(why)
        self.limit = limit
        """The name of the option that sets the limit."""


class SparkFailed(ProxyError):
    """A Spark job that failed, or a Spark that did not start; the arguments are lines with the reason."""


class MalformedFrame(ProxyError):
    """Bytes that are not a valid message; a caller that knows the sender raises a ``ProtocolError`` instead."""


class FrameTooLarge(MalformedFrame):
    """A frame whose size prefix exceeds the limit."""


class BadRecords(ProxyError):
    """Records that cannot be converted; the response has the error ``code`` for their partition."""

    def __init__(self, code: ErrorCode, why: str, *, offset: int = -1) -> None:
        super().__init__(why)
        self.code = code
        self.offset = offset
        """The offset of the first of these records; -1 if it is unknown."""


class ProtocolError(ProxyError):
    """A violation of the Kafka protocol; only its three subclasses are raised."""


class LocalProtocolError(ProtocolError):
    """A violation by Sidefetch, which is a bug; the connection is closed, and the traceback is logged."""


class ClientProtocolError(ProtocolError):
    """A violation by the client; Sidefetch closes its connection and logs one line."""


class BrokerProtocolError(ProtocolError):
    """A violation by a broker; Sidefetch drops its connection, and the fetch session starts with a full fetch."""


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """Yield the errors in *group* and in its nested groups, in order."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error
