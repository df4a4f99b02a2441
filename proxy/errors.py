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
    """Wrong settings or flags: at the start, the command ends with exit code 2; on a reload, nothing changes.

    Each argument is a message about one problem: the option, its value and the accepted values.
    """


class BrokerUnavailable(ProxyError):
    """A broker that cannot be reached, closed the connection, or did not respond in time.

    If the request of a client needed that broker, Sidefetch answers with a retriable error, or closes the client's
    connection with a log event.
    """


class LoginRefused(BrokerUnavailable):
    """A failed SASL login at a broker: the broker refuses Sidefetch, or Sidefetch cannot verify the broker.

    The message contains the remedy. A retry with the same settings fails again.
    """


class LimitReached(ProxyError):
    """A client that exceeds a limit of the settings; Sidefetch closes the client's connection and logs one line."""

    def __init__(self, limit: str, why: str) -> None:
        super().__init__(why)
        self.limit = limit
        """The name of the option that sets the limit."""


class SparkFailed(ProxyError):
    """A Spark job that failed, or a Spark that did not start; the arguments are lines that explain it to users."""


class MalformedFrame(ProxyError):
    """Bytes that are not a valid frame or message of Kafka's protocol; raised by decoders.

    A caller that knows the sender replaces it by ``ClientProtocolError`` or ``BrokerProtocolError``.
    """


class FrameTooLarge(MalformedFrame):
    """A frame whose size prefix exceeds the maximum frame size of its connection."""


class BadRecords(ProxyError):
    """Records that cannot be decompressed or converted, because they are damaged or use an unknown format.

    ``code`` is the Kafka error for their partition in the response to the client.
    """

    def __init__(self, code: ErrorCode, why: str, *, offset: int = -1) -> None:
        super().__init__(why)
        self.code = code
        self.offset = offset
        """The offset of the first of these records; -1 if it is unknown."""


class ProtocolError(ProxyError):
    """A violation of the Kafka protocol; only its subclasses, which name the party at fault, are raised."""


class LocalProtocolError(ProtocolError):
    """A violation of the Kafka protocol by Sidefetch: a bug, which ends the connection and logs a traceback."""


class ClientProtocolError(ProtocolError):
    """A violation of the Kafka protocol by a client; Sidefetch closes the client's connection and logs one line."""


class BrokerProtocolError(ProtocolError):
    """A violation of the Kafka protocol by a broker, for example a response that cannot be decoded.

    Sidefetch closes the connection to the broker. Its own fetches go on in a new session on a new connection; on
    the connection for forwarded requests, the error also ends the client's connection.
    """


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """Yield the exceptions in *group* and in its nested groups, in order, without the groups themselves."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error
