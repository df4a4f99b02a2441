"""Client requests, built from their partitions."""

from collections.abc import Mapping, Sequence

from proxy.wire.fetch import (
    FETCH,
    FetchOptions,
    FetchPartition,
    FetchRequest,
    RequestLayout,
    Topic,
    TopicId,
    TopicSection,
    request_layout,
)
from proxy.wire.headers import RequestHeader

__all__ = ["ORDERS", "PAYMENTS", "request", "sections", "topic_id"]

Asked = Sequence[tuple[Topic, Mapping[int, FetchPartition]]]
ORDERS, PAYMENTS = "orders", "payments"


def topic_id(number: int) -> TopicId:
    return TopicId(number.to_bytes(16))


def sections(layout: RequestLayout, asked: Asked) -> tuple[TopicSection, ...]:
    return tuple(
        TopicSection(topic, b"".join(layout.pack(partition, ask) for partition, ask in partitions.items()))
        for topic, partitions in asked
    )


def request(version: int, asked: Asked, options: FetchOptions | None = None) -> FetchRequest:
    header = RequestHeader(FETCH, version, 7, "client")
    listed = sections(request_layout(version), asked)
    return FetchRequest(header, -1, options or FetchOptions(500, 1), 0, -1, listed, ())
