"""Every error that this package raises on purpose: the class says whose fault it is."""

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
]


class ProxyError(Exception):
    """Everything this package raises on purpose."""


class ConfigError(ProxyError):
    """Refuse to start; names each key, its value and what is accepted. ``cli`` turns it into exit code 2."""


class BrokerUnavailable(ProxyError):
    """A broker could not be reached, or went away; the client is told to retry."""


class LoginRefused(BrokerUnavailable):
    """A broker does not believe who we are, or we not who it is; says what to do. Trying again as is won't help."""


class LimitReached(ProxyError):
    """A client went beyond what it may take: its connection is closed, with one log line."""

    def __init__(self, limit: str, why: str) -> None:
        super().__init__(why)
        self.limit = limit
        """The option that sets it."""


class SparkFailed(ProxyError):
    """Spark did not do what it was asked to; the arguments are lines that tell why."""


class MalformedFrame(ProxyError):
    """Bytes are not the message they claim to be; whoever knows the sender raises one of the errors below."""


class FrameTooLarge(MalformedFrame):
    """A frame claims more than may be taken."""


class BadRecords(ProxyError):
    """Records that cannot be converted; the partition that they belong to is answered with ``code``."""

    def __init__(self, code: ErrorCode, why: str, *, offset: int = -1) -> None:
        super().__init__(why)
        self.code = code
        self.offset = offset
        """Where they begin, as far as they tell it; -1 where they don't."""


class ProtocolError(ProxyError):
    """Someone broke the Kafka protocol; only the three below are ever raised."""


class LocalProtocolError(ProtocolError):
    """We did: a bug. This connection ends, with a traceback."""


class ClientProtocolError(ProtocolError):
    """The client did: its connection is closed, with one log line."""


class BrokerProtocolError(ProtocolError):
    """The broker did: its connection is dropped and the session on it starts from full."""
