"""An upstream fetch after it was sent: decoding of its response, and its telemetry."""

from collections.abc import Callable

import attrs

from proxy.errors import BrokerProtocolError, ErrorCode, MalformedFrame
from proxy.events import FetchRecord, RouteKind
from proxy.fetch.commands import FetcherId
from proxy.session.epochs import INITIAL_EPOCH, NO_SESSION
from proxy.session.upstream import FetchPlan
from proxy.wire.fetch import FetchResponse, Topic, read_response
from proxy.wire.frames import SIZE_BYTES

__all__ = ["Sent", "name_of"]


@attrs.frozen
class Sent:
    """An upstream fetch that was sent to a broker."""

    fetcher: FetcherId
    route: RouteKind
    """The reason why this broker is read: it is the leader, or a closer replica."""
    plan: FetchPlan
    """The session id, epoch and partitions of the request."""
    version: int
    correlation_id: int
    request_bytes: int
    """The size of the request, with the frame's size prefix."""
    sent_s: float
    """The time at which it was sent."""

    def read(self, frame: memoryview) -> FetchResponse:
        """Decode the response in *frame*.

        Raises: BrokerProtocolError: it is malformed, or its correlation id is another one.
        """
        try:
            response = read_response(self.version, frame)
        except MalformedFrame as wrong:
            raise BrokerProtocolError(f"a malformed answer to Fetch v{self.version}: {wrong}") from wrong
        if response.correlation_id != self.correlation_id:
            raise BrokerProtocolError(f"answer {response.correlation_id} to request {self.correlation_id}")
        return response

    def unanswered(self, now_s: float) -> FetchRecord:
        """Return the telemetry of a fetch whose connection ended before its response: error NETWORK_EXCEPTION."""
        return self._record(now_s, NO_SESSION, ErrorCode.network_exception)

    def answered(
        self,
        response: FetchResponse,
        frame_bytes: int,
        now_s: float,
        topic_name: Callable[[Topic], str],
        kept_bytes: int = 0,
        *,
        client_fetches: int = 1,
    ) -> FetchRecord:
        """Return the telemetry of a fetch with its response.

        Args: frame_bytes: the size of the response, without its size prefix.
              client_fetches: the number of client fetches that it served.
              kept_bytes: the bytes of records that logs took; the rest counts as dropped.
        """
        read = [(topic, sum(len(reply.records) for reply in replies)) for topic, replies in response.topics]
        record_bytes = sum(each for _, each in read)
        return self._record(
            now_s,
            response.session_id,
            response.error,
            answered=sum(len(replies) for _, replies in response.topics),
            response_bytes=SIZE_BYTES + frame_bytes,
            record_bytes=record_bytes,
            dropped_bytes=record_bytes - kept_bytes,
            throttle_ms=response.throttle_ms,
            topics=tuple((topic_name(topic), size) for topic, size in read if size),
            client_fetches=client_fetches,
        )

    def _record(
        self,
        now_s: float,
        session_id: int,
        error: int,
        *,
        answered: int = 0,
        response_bytes: int = 0,
        record_bytes: int = 0,
        dropped_bytes: int = 0,
        throttle_ms: int = 0,
        topics: tuple[tuple[str, int], ...] = (),
        client_fetches: int = 1,
    ) -> FetchRecord:
        (source, kind), plan = self.fetcher, self.plan
        return FetchRecord(
            node=source.node_id,
            fetcher="rackless" if source.is_rackless else kind.value,
            fetcher_id=name_of(self.fetcher),
            version=self.version,
            kind="full" if plan.epoch == INITIAL_EPOCH else "sessionless" if plan.is_full else "incremental",
            session_id=session_id,
            epoch=plan.epoch,
            size=plan.size,
            named=len(plan.requested),
            forgotten=len(plan.forgotten),
            answered=answered,
            request_bytes=self.request_bytes,
            response_bytes=response_bytes,
            record_bytes=record_bytes,
            dropped_bytes=dropped_bytes,
            error=error,
            throttle_ms=throttle_ms,
            route=self.route,
            topics=topics,
            sent_s=self.sent_s,
            answered_s=now_s,
            client_fetches=client_fetches,
        )

    def closed(self, frame: memoryview, now_s: float) -> FetchRecord:
        """Return the telemetry of the last fetch of a session, which closed it; *frame* is the response.

        Raises: BrokerProtocolError: *frame* is no response to this fetch.
        """
        return self.answered(self.read(frame), len(frame), now_s, str)


def name_of(fetcher: FetcherId) -> str:
    """Return the name of a fetcher for telemetry, such as ``1-long-poll``; unique within its log cache."""
    (node_id, is_rackless), kind = fetcher
    return f"{node_id}-{'rackless-' if is_rackless else ''}{kind.value}"
