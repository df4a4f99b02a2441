"""Whose fetches pass to the brokers as they came: one rule, as a value that can be changed while Sidefetch runs."""

import re
from collections.abc import Iterable
from typing import Final, Self

import attrs

__all__ = ["Bypass"]

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


@attrs.frozen
class Bypass:
    """Matches nothing unless told otherwise."""

    everything: bool = False
    clients: frozenset[str] = frozenset()
    """Client ids."""
    topics: frozenset[str] = frozenset()
    """Names."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """``all``, ``client:ID`` or ``topic:NAME``, several with commas; ``""`` matches nothing.

        Raises: ValueError: it is none of these.
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
        """Whether a fetch of *topics* passes; one of them that matches is enough."""
        return self.everything or client_id in self.clients or not self.topics.isdisjoint(topics)

    def __bool__(self) -> bool:
        """Whether anything can match."""
        return self.everything or bool(self.clients or self.topics)

    def __str__(self) -> str:
        everything = ["all"] if self.everything else []
        clients = [f"client:{each}" for each in sorted(self.clients)]
        topics = [f"topic:{each}" for each in sorted(self.topics)]
        return ",".join(everything + clients + topics)
