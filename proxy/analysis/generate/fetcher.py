"""A simulated fetcher: the sequence of Sidefetch's upstream fetches to one broker, and its session there."""

from collections.abc import Iterator
from random import Random

import attrs

from proxy.analysis.generate.mix import FleetMix
from proxy.session.slots import MAX_SESSION_ID
from proxy.session.upstream import RejectionReason
from proxy.telemetry.ledger import Row

__all__ = ["UPSTREAM_MAX_WAIT_US", "VERSION", "GeneratedFetcher"]

UPSTREAM_MAX_WAIT_US = 10_000_000
"""The longest wait of an upstream fetch at the broker: the default of ``--upstream-max-wait``."""
VERSION = 18
"""The Fetch version of upstream fetches."""
_RUN_US = 60_000_000
"""Maximum duration of a folded run of fetches."""
_ROUND_TRIP_US = 5_000
"""The longest round trip to a broker."""
_BACK_OFF_US = 10_000_000
"""Time from an eviction or refusal to the next request for a session."""
_HEAD_BYTES, _ANSWER_HEAD_BYTES = 74, 24
"""Bytes of a request, and of a response, without its partitions."""
_ASK_BYTES, _ANSWER_BYTES = 33, 37
"""Bytes of one partition in a request, and in a response, from Fetch version 12 on."""
_NOT_FOUND, _WRONG_EPOCH, _NETWORK_EXCEPTION = 70, 71, 13
"""Kafka's error codes."""
_HOUR_US = 3_600_000_000


@attrs.define
class GeneratedFetcher:
    """A generator of the ledger rows of one fetcher: upstream fetches to one broker, and events of the session.

    The caller advances the time: ``begin``, then ``wait`` and ``bring`` in turn, then ``close``. Each yields the
    rows up to a time, in microseconds since 1970.
    """

    mix: FleetMix
    """The parameters of the fleet, such as the rate of evictions."""
    rng: Random
    common: Row
    """The columns that all rows of the connection have."""
    node: int
    """The broker's node id."""
    rack: str | None
    """The broker's rack."""
    size: int
    """The number of partitions that it reads."""
    now_us: int
    """The time up to which its rows are generated."""
    _session_id: int = 0
    _epoch: int = 0
    _created_us: int = 0
    _requests_at_us: int = 0
    """The earliest time to ask for a session: at the second fetch, and some time after one was lost."""

    def begin(self) -> Iterator[Row]:
        """Yield the row of the fetcher's first fetch, which requests no session, so that it takes no slot."""
        at_us = self.now_us + self._round_trip_us()
        yield self._fetch(at_us, 1, "sessionless", at_us - self.now_us, self.size)
        self.now_us = self._requests_at_us = at_us

    def wait(self, until_us: int) -> Iterator[Row]:
        """Yield the rows of long polls without records until *until_us*, and of session events in that time.

        A fetcher without a session first asks for one. Sessions are evicted and reset at random, at the rates in
        ``mix``. The long poll that is in flight at *until_us* has no row yet; the next call of ``wait``, ``bring``
        or ``close`` yields it.
        """
        until_us -= 2 * _ROUND_TRIP_US
        while True:
            if not self._session_id:
                if max(self._requests_at_us, self.now_us) > until_us:
                    return
                yield from self._request_session()
                continue
            fetches = min(until_us - self.now_us, _RUN_US) // UPSTREAM_MAX_WAIT_US
            if fetches < 1:
                return
            self.now_us += fetches * UPSTREAM_MAX_WAIT_US
            yield self._fetch(self.now_us, fetches, "incremental", fetches * UPSTREAM_MAX_WAIT_US, 0)
            hours = fetches * UPSTREAM_MAX_WAIT_US / _HOUR_US
            if self.rng.random() < hours * self.mix.hourly_evictions:
                yield from self._end("evicted", RejectionReason.EVICTED, _NOT_FOUND)
            elif self.rng.random() < hours * self.mix.hourly_resets:
                yield from self._end("reset", RejectionReason.WRONG_EPOCH, _WRONG_EPOCH)

    def bring(self, at_us: int, record_bytes: int, partitions: int) -> Iterator[Row]:
        """Yield the row of one upstream fetch that returns records at *at_us*; call it after ``wait``.

        The fetch is incremental if the fetcher has a session, otherwise sessionless.

        Args: record_bytes: bytes of the records.
              partitions: the number of partitions with records.
        """
        if self._session_id:
            yield self._fetch(at_us, 1, "incremental", at_us - self.now_us, partitions, record_bytes)
        else:
            yield self._fetch(at_us, 1, "sessionless", at_us - self.now_us, self.size, record_bytes)
        self.now_us = at_us

    def close(self, at_us: int) -> Iterator[Row]:
        """Yield the rows of the fetcher's end at *at_us*, when the client disconnects.

        They are the abandoned fetch in flight, with the error NETWORK_EXCEPTION, and, if there is a session, the
        event that it is closed and the fetch that closes it.
        """
        kind = "incremental" if self._session_id else "sessionless"
        yield self._fetch(at_us, 1, kind, at_us - self.now_us, 0, error=_NETWORK_EXCEPTION)
        if self._session_id:
            yield self._session(at_us, "closed", "the client has gone")
            self.size, self._session_id = 0, 0
            round_trip_us = self._round_trip_us()
            yield self._fetch(at_us + round_trip_us, 1, "sessionless", round_trip_us, 0)

    def _request_session(self) -> Iterator[Row]:
        """Yield a full fetch, which asks for a session, and the event that it is created or refused."""
        sent_us = max(self._requests_at_us, self.now_us)
        at_us = sent_us + self._round_trip_us()
        is_granted = self.rng.random() >= self.mix.refused
        self._session_id = self.rng.randint(1, MAX_SESSION_ID - 7) if is_granted else 0
        self._epoch, self._created_us = 0, at_us
        yield self._fetch(at_us, 1, "full", at_us - sent_us, self.size)
        reason = None if is_granted else "the broker has granted none"
        yield self._session(at_us, "created" if is_granted else "refused", reason)
        self._requests_at_us = at_us + _BACK_OFF_US
        self.now_us = at_us

    def _end(self, event: str, why: RejectionReason, error: int) -> Iterator[Row]:
        """Yield the fetch that fails with *error* because the session is gone, and the session's *event*."""
        at_us = self.now_us + self._round_trip_us()
        yield self._fetch(at_us, 1, "incremental", at_us - self.now_us, 0, error=error)
        yield self._session(at_us, event, why.value)
        self._session_id, self._epoch = 0, 0
        self.now_us, self._requests_at_us = at_us, at_us + _BACK_OFF_US

    def _round_trip_us(self) -> int:
        return self.rng.randint(500, _ROUND_TRIP_US)

    def _fetch(
        self,
        at_us: int,
        fetches: int,
        kind: str,
        broker_us: int,
        named: int,
        record_bytes: int = 0,
        *,
        error: int = 0,
    ) -> Row:
        is_answered = error != _NETWORK_EXCEPTION
        answered = 0 if error or not (record_bytes or kind != "incremental") else named
        epoch = -1 if kind == "sessionless" else self._epoch
        row = self.common | {
            "record": "fetch",
            "at_us": at_us,
            "first_at_us": at_us - (fetches - 1) * UPSTREAM_MAX_WAIT_US,
            "fetches": fetches,
            "fetcher_id": f"{self.node}-long-poll",
            "fetcher": "long-poll",
            "node": self.node,
            "rack": self.rack,
            "version": VERSION,
            "kind": kind,
            "session_id": 0 if kind == "sessionless" or error else self._session_id,
            "epoch_first": epoch,
            "epoch_last": epoch if epoch < 0 else epoch + fetches - 1,
            "size": fetches * self.size,
            "named": named,
            "forgotten": 0,
            "answered": answered,
            "request_bytes": fetches * _HEAD_BYTES + named * _ASK_BYTES,
            "response_bytes": is_answered * fetches * _ANSWER_HEAD_BYTES + answered * _ANSWER_BYTES + record_bytes,
            "record_bytes": record_bytes,
            "dropped_bytes": 0,
            "broker_us": broker_us,
            "throttle_us": 0,
            "error": error,
            "client_fetches": fetches,
        }
        self._epoch += fetches
        return row

    def _session(self, at_us: int, event: str, reason: str | None) -> Row:
        row = {name: value for name, value in self.common.items() if name != "connection_id"}
        return row | {
            "record": "session",
            "at_us": at_us,
            "first_at_us": at_us,
            "side": "upstream",
            "node": self.node,
            "fetcher_id": f"{self.node}-long-poll",
            "session_id": self._session_id,
            "event": event,
            "reason": reason,
            "partitions": self.size,
            "created_us": self._created_us if self._session_id else None,
            "last_used_us": self.now_us if self._session_id else None,
        }
