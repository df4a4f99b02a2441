"""What an exchange has come to, put together while it goes on, for whoever wants to be told of exchanges."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs

from proxy.cluster.routing import Source
from proxy.errors import ErrorCode
from proxy.events import Cause, ExchangeRecord, SourceShare
from proxy.fetch.client_sessions import Answer
from proxy.fetch.lane import Lane
from proxy.fetch.sheet import News
from proxy.wire.fetch import FetchRequest, Topic, request_layout

__all__ = ["Telling"]

_MOST_SHARES: Final = 64
_OTHERS: Final = ""


@attrs.define
class _Brought:
    """What one source has brought of one topic."""

    partitions: int = 0
    record_bytes: int = 0


@attrs.define
class Telling:
    """Everything about one exchange that its record will tell.

    Cost: O(1) an event, O(topics x sources) for the record; and of what is handed out.
    """

    request: FetchRequest
    """As it was sent: what a session remembers is not in it."""
    request_bytes: int
    """With the frame's size prefix."""
    started_s: float
    is_asked: bool = False
    """Whether it came so far that what it wants was asked for: before, lanes have what was wanted last time."""
    _cause: Cause = "broker"
    _since_s: float = attrs.field(default=attrs.Factory(lambda self: self.started_s, takes_self=True))
    _waited_s: dict[Cause, float] = attrs.field(factory=dict)
    _held_bytes: int = 0
    _brought: dict[tuple[Topic, Source], _Brought] = attrs.field(factory=dict)
    _given: Mapping[Topic, Sequence[News]] = attrs.field(factory=dict)
    _answer: Answer | None = None
    _response_bytes: int = 0

    def waits_for(self, cause: Cause, now_s: float) -> None:
        """From now on."""
        self._waited_s[self._cause] = self._waited_s.get(self._cause, 0.0) + now_s - self._since_s
        self._cause, self._since_s = cause, now_s

    def handed_out(self, topic: Topic, source: Source, record_bytes: int, brought_s: float) -> None:
        """Records of a partition of *topic*, by the broker's name, that *source* has brought are in the answer."""
        brought = self._brought.setdefault((topic, source), _Brought())
        brought.partitions += 1
        brought.record_bytes += record_bytes
        if brought_s < self.started_s:
            self._held_bytes += record_bytes

    def answered(self, answer: Answer, news: Mapping[Topic, Sequence[News]], response_bytes: int) -> None:
        """The answer is made, with *news* in it, if there are partitions in it at all."""
        self._answer, self._response_bytes = answer, response_bytes
        self._given = news if answer.partitions else {}

    def record(
        self,
        whole: FetchRequest,
        home: Source,
        lanes: Iterable[Lane],
        name_of: Callable[[Topic], str],
        now_s: float,
    ) -> ExchangeRecord:
        """The answer is on its way. The time from here on is to be added by whoever sends it.

        Args: whole: the request, with all that the client's session holds.
              home:  the broker that the client has asked.
        """
        assert self._answer is not None
        self.waits_for("write", now_s)
        stride = request_layout(whole.version).stride
        # Of two words about a partition the last one is told.
        last = {(topic, each.reply.partition): each for topic, news in self._given.items() for each in news}
        given = last.values()
        errors = Counter(int(each.reply.error) for each in given if each.reply.error)
        if self._answer.error != ErrorCode.none:
            errors[int(self._answer.error)] += 1
        return ExchangeRecord(
            node=home.node_id,
            client_id=whole.header.client_id,
            version=whole.version,
            session_id=self._answer.session_id,
            session_epoch=whole.session_epoch,
            wanted=_partitions(whole, stride),
            named=_partitions(self.request, stride),
            answered=self._answer.partitions,
            with_data=sum(len(each.records) > 0 for each in given),
            request_bytes=self.request_bytes,
            response_bytes=self._response_bytes,
            source_bytes=sum(each.record_bytes for each in self._brought.values()),
            held_bytes=self._held_bytes,
            delivered_bytes=sum(len(each.records) for each in given),
            sources=self._shares(home, lanes if self.is_asked else (), name_of, stride),
            errors=tuple(sorted(errors.items())),
            started_s=self.started_s,
            ended_s=now_s,
            waited_us=tuple((cause, round(for_s * 1e6)) for cause, for_s in self._waited_s.items() if for_s > 0),
        )

    def _shares(
        self, home: Source, lanes: Iterable[Lane], name_of: Callable[[Topic], str], stride: int
    ) -> tuple[SourceShare, ...]:
        wanted: Counter[tuple[str, int]] = Counter()
        for lane in lanes:
            for topic, partitions in lane.topics.items():
                wanted[name_of(topic), lane.id.source.node_id] += partitions
        brought: Counter[tuple[str, int]] = Counter()
        for (topic, source), each in self._brought.items():
            # What has just been handed out is on no lane until the client asks on from there.
            wanted[name_of(topic), source.node_id] += each.partitions
            brought[name_of(topic), source.node_id] += each.record_bytes
        most = sorted(wanted, key=lambda each: (brought[each], wanted[each]), reverse=True)
        told = most if len(most) <= _MOST_SHARES else most[: _MOST_SHARES - 1]
        shares = [
            SourceShare(
                topic, node, home.node_id, wanted[topic, node], brought[topic, node], wanted[topic, node] * stride
            )
            for topic, node in told
        ]
        if others := most[len(told) :]:
            partitions = sum(wanted[each] for each in others)
            record_bytes = sum(brought[each] for each in others)
            shares.append(
                SourceShare(_OTHERS, home.node_id, home.node_id, partitions, record_bytes, partitions * stride)
            )
        return tuple(shares)


def _partitions(request: FetchRequest, stride: int) -> int:
    return sum(len(section.entries) for section in request.sections) // stride
