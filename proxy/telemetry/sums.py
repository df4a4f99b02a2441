"""Numbers over time: since the start, by the minute, and now."""

import math
from collections import deque
from collections.abc import Iterator
from typing import Final

import attrs

__all__ = ["MINUTES", "MINUTE_US", "Minute", "Minutes", "Rate", "Sums"]

MINUTE_US: Final = 60_000_000
MINUTES: Final = 60
"""How many are kept."""
_DECAY_S: Final = 10.0
"""A rate tells of about the last so many seconds."""


@attrs.define
class Sums:
    """What was done; of all time, or of a minute. Bytes are with the frames' size prefixes."""

    client_fetches: int = 0
    """Answered to clients."""
    failed_fetches: int = 0
    """Of these, those that were told nothing but errors: nothing is saved by them."""
    failed_talk_bytes: int = 0
    """What those came to."""
    client_request_bytes: int = 0
    client_response_bytes: int = 0
    delivered_bytes: int = 0
    """Of the responses, records as clients got them."""
    held_bytes: int = 0
    """Of records, those that were here already when the client asked."""
    client_partitions: int = 0
    """That clients' fetches asked for, named or remembered."""
    broker_fetches: int = 0
    """Sidefetch's own, answered by brokers."""
    broker_request_bytes: int = 0
    broker_response_bytes: int = 0
    record_bytes: int = 0
    """Of the responses, records as brokers sent them."""
    broker_named: int = 0
    """Partitions that Sidefetch's own fetches named."""
    broker_partitions: int = 0
    """That they asked for, named or remembered."""
    own_rack_bytes: int = 0
    """Of records."""
    crossed_bytes: int = 0
    """Of records, from another rack than ours."""
    converted_records: int = 0
    converted_in_bytes: int = 0
    converted_out_bytes: int = 0
    padding_bytes: int = 0
    conversion_cpu_us: int = 0
    resets: int = 0
    """Of sessions with brokers, refusals and evictions among them."""

    @property
    def saved_fetches(self) -> int:
        """That clients made and brokers did not see; below 0 where Sidefetch made more."""
        return self.client_fetches - self.failed_fetches - self.broker_fetches

    @property
    def client_talk_bytes(self) -> int:
        """What clients' fetches came to without the records."""
        return self.client_request_bytes + self.client_response_bytes - self.delivered_bytes

    @property
    def broker_talk_bytes(self) -> int:
        """What Sidefetch's own fetches came to without the records."""
        return self.broker_request_bytes + self.broker_response_bytes - self.record_bytes

    @property
    def saved_bytes(self) -> int:
        """Of what is said to have records brought, not of records: those are the same, or converted."""
        return self.client_talk_bytes - self.failed_talk_bytes - self.broker_talk_bytes


@attrs.frozen
class Minute:
    """A minute of the wall clock."""

    at_us: int
    """When it began."""
    sums: Sums = attrs.field(factory=Sums)


class Minutes:
    """The last hour."""

    def __init__(self) -> None:
        self._kept: deque[Minute] = deque(maxlen=MINUTES)

    def sums(self, now_us: int) -> Sums:
        """Those of this minute. A clock that was set back goes on with the newest there is."""
        at_us = now_us - now_us % MINUTE_US
        if not self._kept or self._kept[-1].at_us < at_us:
            self._kept.append(Minute(at_us))
        return self._kept[-1].sums

    def last(self, now_us: int) -> Iterator[Minute]:
        """All minutes of the last hour, oldest first, this one last; empty ones where nothing was done."""
        newest_us = now_us - now_us % MINUTE_US
        if self._kept:
            newest_us = max(newest_us, self._kept[-1].at_us)
        known = {each.at_us: each for each in self._kept}
        for back in reversed(range(MINUTES)):
            at_us = newest_us - back * MINUTE_US
            yield known.get(at_us) or Minute(at_us)


@attrs.define
class Rate:
    """How much a second, now: what came long ago counts ever less."""

    _per_s: float = 0.0
    _at_us: int = 0

    def add(self, amount: float, now_us: int) -> None:
        self._per_s = self.at(now_us) + amount / _DECAY_S
        self._at_us = max(now_us, self._at_us)

    def at(self, now_us: int) -> float:
        passed_s = max(0, now_us - self._at_us) / 1_000_000
        return self._per_s * math.exp(-passed_s / _DECAY_S)
