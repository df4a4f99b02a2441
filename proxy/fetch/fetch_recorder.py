"""Collection of the telemetry of one client fetch, from its request to its response."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import attrs

from proxy.cluster.routing import Source
from proxy.cluster.topology import BrokerId
from proxy.errors import ErrorCode
from proxy.events import Cause, ExchangeRecord, SourceShare
from proxy.fetch.client_sessions import Answer
from proxy.fetch.response_template import PartitionUpdate, Updates
from proxy.wire.fetch import FetchRequest, Topic, request_layout

__all__ = ["FetchRecorder"]

_MOST_SHARES: Final = 64
_OTHERS: Final = ""


@attrs.define
class _Brought:
    """The partitions and bytes of one topic that one source contributed to a response."""

    partitions: int = 0
    record_bytes: int = 0


@attrs.define
class FetchRecorder:
    """The collector of the telemetry of one client fetch: call its methods as events occur, then ``record``.

    Cost: O(1) for each event; O(topics x sources) for the record, and O(partitions with records or errors).
    """

    request: FetchRequest
    """The request as the client sent it, without the other partitions of its session."""
    request_bytes: int
    """The size of the request, with the frame's size prefix."""
    started_s: float
    """The time of the request."""
    is_asked: bool = False
    """Whether the logs of its partitions were found; before, the reader's logs are those of the last fetch."""
    _cause: Cause = "broker"
    """The reason why the fetch waits, since ``_since_s``."""
    _since_s: float = attrs.field(default=attrs.Factory(lambda self: self.started_s, takes_self=True))
    _waited_s: dict[Cause, float] = attrs.field(factory=dict)
    _held_bytes: int = 0
    _brought: dict[tuple[Topic, Source], _Brought] = attrs.field(factory=dict)
    _given: Updates = attrs.field(factory=dict)
    _answer: Answer | None = None
    _response_bytes: int = 0

    def waits_for(self, cause: Cause, now_s: float) -> None:
        """Record that the fetch waits for *cause* from now on; the time until now goes to the last cause."""
        self._waited_s[self._cause] = self._waited_s.get(self._cause, 0.0) + now_s - self._since_s
        self._cause, self._since_s = cause, now_s

    def handed_out(self, topic: Topic, source: Source, record_bytes: int, brought_s: float) -> None:
        """Count the records of one partition that were read for the response.

        They count even if they are left out, because the client can see none of them or they cannot be converted.

        Args: topic: the topic, as brokers name it.
              source: the broker that sent the records.
              record_bytes: the size of the records, as the broker sent them.
              brought_s: the arrival of the first of them; if it is before the client fetch, all count as cached.
        """
        brought = self._brought.setdefault((topic, source), _Brought())
        brought.partitions += 1
        brought.record_bytes += record_bytes
        if brought_s < self.started_s:
            self._held_bytes += record_bytes

    def answered(self, answer: Answer, updates: Updates, response_bytes: int) -> None:
        """Keep the response: its body, its partitions with records or errors, and its size with the size prefix."""
        self._answer, self._response_bytes = answer, response_bytes
        self._given = updates if answer.partitions else {}

    def record(
        self,
        whole: FetchRequest,
        node_id: BrokerId,
        logs: Mapping[tuple[Topic, BrokerId], int],
        name_of: Callable[[Topic], str],
        now_s: float,
        *,
        is_shared: bool = False,
    ) -> ExchangeRecord:
        """Return the telemetry of the fetch, after ``answered``; the sender adds the time for sending the response.

        Args: whole: the request, with all partitions of the client's session.
              node_id: the broker whose listener the client uses.
              logs: the number of partitions by topic and source.
              is_shared: whether clients share the log cache of the records.
        """
        assert self._answer is not None
        self.waits_for("write", now_s)
        stride = request_layout(whole.version).stride
        updates = self._last_updates()
        return ExchangeRecord(
            node=node_id,
            client_id=whole.header.client_id,
            version=whole.version,
            session_id=self._answer.session_id,
            session_epoch=whole.session_epoch,
            wanted=_partitions(whole, stride),
            named=_partitions(self.request, stride),
            answered=self._answer.partitions,
            with_data=sum(len(each.records) > 0 for each in updates),
            request_bytes=self.request_bytes,
            response_bytes=self._response_bytes,
            source_bytes=sum(each.record_bytes for each in self._brought.values()),
            held_bytes=self._held_bytes,
            delivered_bytes=sum(len(each.records) for each in updates),
            sources=self._shares(node_id, logs if self.is_asked else {}, name_of, stride),
            errors=_count_errors(self._answer, updates),
            started_s=self.started_s,
            ended_s=now_s,
            waited_us=self._waits_us(),
            is_shared=is_shared,
        )

    def _last_updates(self) -> Collection[PartitionUpdate]:
        """Return the partitions with records or errors; of two results for a partition, the last one counts."""
        last = {(topic, each.reply.partition): each for topic, updates in self._given.items() for each in updates}
        return last.values()

    def _waits_us(self) -> tuple[tuple[Cause, int], ...]:
        """Return the causes of waits with their durations in microseconds, in the order of their first waits."""
        return tuple((cause, round(for_s * 1e6)) for cause, for_s in self._waited_s.items() if for_s > 0)

    def _shares(
        self,
        node_id: BrokerId,
        logs: Mapping[tuple[Topic, BrokerId], int],
        name_of: Callable[[Topic], str],
        stride: int,
    ) -> tuple[SourceShare, ...]:
        wanted: Counter[tuple[str, int]] = Counter()
        for (topic, node), partitions in logs.items():
            if partitions:
                wanted[name_of(topic), node] += partitions
        brought: Counter[tuple[str, int]] = Counter()
        for (topic, source), each in self._brought.items():
            brought[name_of(topic), source.node_id] += each.record_bytes
        most = sorted(wanted, key=lambda each: (brought[each], wanted[each]), reverse=True)
        listed = most if len(most) <= _MOST_SHARES else most[: _MOST_SHARES - 1]
        shares = [
            SourceShare(
                topic, node, node_id, wanted[topic, node], brought[topic, node], wanted[topic, node] * stride
            )
            for topic, node in listed
        ]
        if others := most[len(listed) :]:
            partitions = sum(wanted[each] for each in others)
            record_bytes = sum(brought[each] for each in others)
            shares.append(SourceShare(_OTHERS, node_id, node_id, partitions, record_bytes, partitions * stride))
        return tuple(shares)


def _count_errors(answer: Answer, updates: Iterable[PartitionUpdate]) -> tuple[tuple[int, int], ...]:
    """Return the error codes of the response and of its partitions, each with its number, by code."""
    errors = Counter(int(each.reply.error) for each in updates if each.reply.error)
    if answer.error != ErrorCode.none:
        errors[int(answer.error)] += 1
    return tuple(sorted(errors.items()))


def _partitions(request: FetchRequest, stride: int) -> int:
    return sum(len(section.entries) for section in request.sections) // stride
