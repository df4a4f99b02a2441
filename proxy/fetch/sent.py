"""A fetch on its way to a broker, and what is told of it: with its answer, or without."""

from collections.abc import Callable

import attrs

from proxy.errors import BrokerProtocolError, ErrorCode, MalformedFrame
from proxy.fetch.commands import LaneId
from proxy.session.epochs import INITIAL_EPOCH, NO_SESSION
from proxy.session.upstream import Plan
from proxy.trace import FetchRecord, RouteKind
from proxy.wire.fetch import FetchResponse, Topic, read_response
from proxy.wire.frames import SIZE_BYTES

__all__ = ["Sent", "name_of"]


@attrs.frozen
class Sent:
    """A fetch as it was sent."""

    lane: LaneId
    route: RouteKind
    """Why this broker is asked."""
    plan: Plan
    version: int
    correlation_id: int
    request_bytes: int
    """With the frame's size prefix."""
    sent_s: float

    def read(self, frame: memoryview) -> FetchResponse:
        """Raises: BrokerProtocolError: *frame* is no answer to this."""
        try:
            response = read_response(self.version, frame)
        except MalformedFrame as wrong:
            raise BrokerProtocolError(f"a malformed answer to Fetch v{self.version}: {wrong}") from wrong
        if response.correlation_id != self.correlation_id:
            raise BrokerProtocolError(f"answer {response.correlation_id} to request {self.correlation_id}")
        return response

    def unanswered(self, now_s: float) -> FetchRecord:
        """The connection has ended before the answer; the error is what Kafka's clients make of that."""
        (source, kind), plan = self.lane, self.plan
        return FetchRecord(
            node=source.node_id,
            lane="rackless" if source.is_rackless else kind.value,
            lane_id=name_of(self.lane),
            version=self.version,
            kind="full" if plan.epoch == INITIAL_EPOCH else "sessionless" if plan.is_full else "incremental",
            session_id=NO_SESSION,
            epoch=plan.epoch,
            size=plan.size,
            named=len(plan.asks),
            forgotten=len(plan.forgotten),
            answered=0,
            request_bytes=self.request_bytes,
            response_bytes=0,
            record_bytes=0,
            dropped_bytes=0,
            error=ErrorCode.network_exception,
            throttle_ms=0,
            route=self.route,
            topics=(),
            sent_s=self.sent_s,
            answered_s=now_s,
        )

    def answered(
        self, response: FetchResponse, frame_bytes: int, now_s: float, topic_name: Callable[[Topic], str]
    ) -> FetchRecord:
        """As if none of the records were of use."""
        read = [(topic, sum(len(reply.records) for reply in replies)) for topic, replies in response.topics]
        return attrs.evolve(
            self.unanswered(now_s),
            session_id=response.session_id,
            answered=sum(len(replies) for _, replies in response.topics),
            response_bytes=SIZE_BYTES + frame_bytes,
            record_bytes=response.record_bytes,
            dropped_bytes=response.record_bytes,
            error=response.error,
            throttle_ms=response.throttle_ms,
            topics=tuple((topic_name(topic), record_bytes) for topic, record_bytes in read if record_bytes),
        )

    def closed(self, frame: memoryview, now_s: float) -> FetchRecord:
        """*frame* is the answer to the last fetch of a session. Raises: BrokerProtocolError: it is none."""
        return self.answered(self.read(frame), len(frame), now_s, str)


def name_of(lane: LaneId) -> str:
    """For people, and for telling the lanes of a connection apart."""
    (node_id, is_rackless), kind = lane
    return f"{node_id}-{'rackless-' if is_rackless else ''}{kind.value}"
