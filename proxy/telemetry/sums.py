"""Sums of fetches and bytes since the start and by the minute, and present rates."""

import math
from collections import deque
from collections.abc import Iterator
from typing import Final

import attrs

__all__ = ["MINUTES", "MINUTE_US", "Minute", "Minutes", "Rate", "Sums"]

MINUTE_US: Final = 60_000_000
MINUTES: Final = 60
"""The number of minutes that are kept."""
_DECAY_S: Final = 10.0
"""The time constant of rates, in seconds."""


@attrs.define
class Sums:
    """The sums of client fetches and upstream fetches, and of their bytes, since the start or in one minute.

    Bytes of requests and responses include the frames' size prefixes.
    """

    client_fetches: int = 0
    """Answered client fetches."""
    failed_fetches: int = 0
    """The part of ``client_fetches`` that got only errors: they save nothing."""
    failed_talk_bytes: int = 0
    """Bytes of these failed fetches and their responses, without records."""
    client_request_bytes: int = 0
    client_response_bytes: int = 0
    delivered_bytes: int = 0
    """Bytes of records in the responses, as delivered."""
    held_bytes: int = 0
    """Bytes of records from brokers that were buffered before the client asked."""
    client_partitions: int = 0
    """Partitions of client fetches, named or remembered by a session."""
    broker_fetches: int = 0
    """Answered upstream fetches."""
    broker_request_bytes: int = 0
    broker_response_bytes: int = 0
    record_bytes: int = 0
    """Bytes of records in the responses to upstream fetches, as brokers sent them."""
    shared_fetched_bytes: int = 0
    """The part of ``record_bytes`` that was fetched for log caches that clients share (``--share-reads``)."""
    shared_delivered_bytes: int = 0
    """Bytes of records, as brokers sent them, in responses to clients from these log caches."""
    broker_named: int = 0
    """Partitions that upstream fetches named."""
    broker_partitions: int = 0
    """Partitions of upstream fetches, named or remembered by a session."""
    own_rack_bytes: int = 0
    """Bytes of records from Sidefetch's own rack."""
    crossed_bytes: int = 0
    """Bytes of records from other racks."""
    converted_records: int = 0
    converted_in_bytes: int = 0
    converted_out_bytes: int = 0
    padding_bytes: int = 0
    conversion_cpu_us: int = 0
    resets: int = 0
    """Sidefetch's sessions at brokers that were reset, refused or evicted."""

    @property
    def saved_fetches(self) -> int:
        """The number of client fetches that did not fail, less upstream fetches; may be negative."""
        return self.client_fetches - self.failed_fetches - self.broker_fetches

    @property
    def client_talk_bytes(self) -> int:
        """Protocol bytes between clients and Sidefetch: client fetches and their responses, without records."""
        return self.client_request_bytes + self.client_response_bytes - self.delivered_bytes

    @property
    def broker_talk_bytes(self) -> int:
        """Protocol bytes between Sidefetch and brokers: upstream fetches and their responses, without records."""
        return self.broker_request_bytes + self.broker_response_bytes - self.record_bytes

    @property
    def saved_bytes(self) -> int:
        """Bytes saved: those that clients would have exchanged with brokers, less those of upstream fetches.

        They are protocol bytes, of client fetches that did not fail, and bytes of shared reads: records that were
        delivered to clients, in the brokers' size, less records that were fetched for them. Other records do not
        count: they are the same bytes on both sides, or are converted.
        """
        talk_bytes = self.client_talk_bytes - self.failed_talk_bytes - self.broker_talk_bytes
        return talk_bytes + self.shared_delivered_bytes - self.shared_fetched_bytes

    @property
    def delivery_ratio(self) -> float | None:
        """The number of times that each byte of shared reads was delivered; None before the first one.

        It is the ratio of ``shared_delivered_bytes`` to ``shared_fetched_bytes``.
        """
        return self.shared_delivered_bytes / self.shared_fetched_bytes if self.shared_fetched_bytes else None


@attrs.frozen
class Minute:
    """The sums of one minute of the wall clock."""

    at_us: int
    """The beginning of the minute, in microseconds since 1970."""
    sums: Sums = attrs.field(factory=Sums)


class Minutes:
    """The sums of each minute of the last hour."""

    def __init__(self) -> None:
        self._kept: deque[Minute] = deque(maxlen=MINUTES)

    def sums(self, now_us: int) -> Sums:
        """Return the sums of the minute of *now_us*, for the caller to add to; begin the minute if it is new.

        If the clock was set back, they are the sums of the newest minute.
        """
        at_us = now_us - now_us % MINUTE_US
        if not self._kept or self._kept[-1].at_us < at_us:
            self._kept.append(Minute(at_us))
        return self._kept[-1].sums

    def last(self, now_us: int) -> Iterator[Minute]:
        """Yield the 60 minutes up to that of *now_us*, oldest first; minutes without activity have sums of zero."""
        newest_us = now_us - now_us % MINUTE_US
        if self._kept:
            newest_us = max(newest_us, self._kept[-1].at_us)
        known = {each.at_us: each for each in self._kept}
        for back in reversed(range(MINUTES)):
            at_us = newest_us - back * MINUTE_US
            yield known.get(at_us) or Minute(at_us)


@attrs.define
class Rate:
    """A present rate per second, as an exponentially decaying average with a time constant of 10 s."""

    _per_s: float = 0.0
    _at_us: int = 0

    def add(self, amount: float, now_us: int) -> None:
        self._per_s = self.at(now_us) + amount / _DECAY_S
        self._at_us = max(now_us, self._at_us)

    def at(self, now_us: int) -> float:
        passed_s = max(0, now_us - self._at_us) / 1_000_000
        return self._per_s * math.exp(-passed_s / _DECAY_S)
