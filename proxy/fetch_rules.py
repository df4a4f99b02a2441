"""Rules that select client fetches by client id and topic: for ``bypass`` and ``share-reads-except``."""

import re
from collections.abc import Iterable
from typing import Final, Self

import attrs

__all__ = ["NO_RULES", "FetchRules"]

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


@attrs.frozen
class FetchRules:
    """Rules that select client fetches by client id and topic; by default they select none."""

    everything: bool = False
    """Whether all fetches are selected."""
    clients: frozenset[str] = frozenset()
    """The ids of clients; all their fetches are selected."""
    topics: frozenset[str] = frozenset()
    """Names of topics; a fetch that contains one of them is selected."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the rules in *text*: ``all``, ``client:ID``, ``topic:NAME``, separated by commas; ``""`` for none.

        Raises: ValueError: a part of *text* has another form.
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
        """Return whether a rule matches a fetch of *topics* by client *client_id*; one matching topic is enough."""
        return self.everything or client_id in self.clients or not self.topics.isdisjoint(topics)

    def __bool__(self) -> bool:
        """Return whether any fetch can match."""
        return self.everything or bool(self.clients or self.topics)

    def __str__(self) -> str:
        everything = ["all"] if self.everything else []
        clients = [f"client:{each}" for each in sorted(self.clients)]
        topics = [f"topic:{each}" for each in sorted(self.topics)]
        return ",".join(everything + clients + topics)


NO_RULES: Final = FetchRules()
"""Rules that select no fetch."""
