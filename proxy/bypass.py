"""The rule for fetches that are forwarded to the brokers unchanged; it can be replaced while Sidefetch runs."""

import re
from collections.abc import Iterable
from typing import Final, Self

import attrs

__all__ = ["Bypass"]

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


@attrs.frozen
class Bypass:
    """The clients and topics whose fetches are forwarded unchanged; by default none."""

    everything: bool = False
    """Whether all fetches are forwarded unchanged."""
    clients: frozenset[str] = frozenset()
    """Client ids, all of whose fetches are forwarded unchanged."""
    topics: frozenset[str] = frozenset()
    """Names of topics; a fetch of one of them is forwarded unchanged."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``all``, ``client:ID`` or ``topic:NAME``, or several of them with commas; ``""`` matches nothing.

        Raises: ValueError: a part has another form.
        """
        everything, clients, topics = False, set(), set()
        for part in text.split(",") if text.strip() else ():
            kind, colon, name = part.strip().partition(":")
            if (kind, colon) == ("all", ""):
                everything = True
            elif kind == "client" and name:
                clients.add(name)
            elif kind == "topic" and _TOPIC.fullmatch(name):
                topics.add(name)
            else:
                raise ValueError(f"{part!r} is neither all nor client:ID nor topic:NAME")
        return cls(everything, frozenset(clients), frozenset(topics))

    def matches(self, client_id: str | None, topics: Iterable[str]) -> bool:
        """Return whether a fetch of *topics* is forwarded unchanged; one matching topic is enough."""
        return self.everything or client_id in self.clients or not self.topics.isdisjoint(topics)

    def __bool__(self) -> bool:
        """Return whether any fetch can match."""
        return self.everything or bool(self.clients or self.topics)

    def __str__(self) -> str:
        everything = ["all"] if self.everything else []
        clients = [f"client:{each}" for each in sorted(self.clients)]
        topics = [f"topic:{each}" for each in sorted(self.topics)]
        return ",".join(everything + clients + topics)
