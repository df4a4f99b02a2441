"""A client's fetch being answered: whole, refused, unreadable or empty, in every version; kio reads it."""

from typing import Any

import attrs
import pytest
from kio.schema.errors import ErrorCode

from proxy.errors import ClientProtocolError
from proxy.fetch.client_sessions import Refused
from proxy.fetch.exchange import Exchange, check_request
from proxy.fetch.response_template import ResponseTemplate
from proxy.wire import messages
from proxy.wire.fetch import (
    Endpoint,
    FetchOptions,
    FetchPartition,
    FetchResponse,
    PartitionReply,
    Topic,
    erroneous,
    read_response,
    request_layout,
    response_layout,
)
from proxy.wire.frames import Pieces
from tests.fetch.requests import ORDERS, PAYMENTS, request, topic_id
from tests.pieces import joined
from tests.wire.fetch.oracle import KIO_VERSIONS, response_type

UNKNOWN_TOPIC_ID, NOT_LEADER = 100, 6
EVERY_VERSION = pytest.mark.parametrize("version", KIO_VERSIONS)


def names(version: int) -> tuple[Topic, Topic]:
    return (topic_id(1), topic_id(2)) if version >= 13 else (ORDERS, PAYMENTS)


def exchange(version: int, *, isolation: int = 0) -> Exchange:
    orders, payments = names(version)
    asked = [
        (orders, {3: FetchPartition(0, 1), 0: FetchPartition(0, 1)}),
        (payments, {1: FetchPartition(0, 1)}),
        (orders, {2: FetchPartition(0, 1)}),
    ]
    return Exchange(request(version, asked, FetchOptions(500, 1, isolation=isolation)), started_s=10.0)


def sheet_of(made: Exchange) -> ResponseTemplate:
    template = ResponseTemplate(response_layout(made.version), committed=False)
    sections = made.request.sections
    template.reshape(request_layout(made.version), sections, range(len(sections)))
    return template


def map_address(node_id: int, host: str, port: int) -> tuple[str, int] | None:
    assert (host, port) == ("real", 9092)
    return None if node_id == 9 else ("127.0.0.1", 9093 + node_id)


def read(version: int, pieces: Pieces) -> FetchResponse:
    frame = joined(pieces)
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    by_kio: Any = messages.read_response(response_type(version), frame[4:])
    assert by_kio[0] == 7
    return read_response(version, frame[4:])


def shape(response: FetchResponse) -> list[tuple[Topic, list[int]]]:
    return [(topic, [each.partition for each in replies]) for topic, replies in response.topics]


def errors(response: FetchResponse) -> set[int]:
    return {each.error for _, replies in response.topics for each in replies}


@EVERY_VERSION
def test_response_has_all_partitions_in_client_order_and_no_session(version: int) -> None:
    made = exchange(version)
    orders, payments = names(version)
    made.throttle_ms = 77
    made.add(payments, PartitionReply(1, 0, 9, 9, records=b"records"))

    decoded_response = read(version, made.answer(sheet_of(made), map_address))

    assert (
        decoded_response.correlation_id,
        decoded_response.throttle_ms,
        decoded_response.error,
        decoded_response.session_id,
    ) == (7, 77, 0, 0)
    assert shape(decoded_response) == [(orders, [3, 0]), (payments, [1]), (orders, [2])]
    assert decoded_response.topics[1][1][0].records == b"records"


@EVERY_VERSION
def test_error_codes_are_mapped_for_client_version(version: int) -> None:
    made = exchange(version)
    orders, _ = names(version)
    made.add(orders, erroneous(0, UNKNOWN_TOPIC_ID))
    made.add(orders, erroneous(2, 74))

    decoded_response = read(version, made.answer(sheet_of(made), map_address))

    assert decoded_response.topics[0][1][1].error == (100 if version >= 13 else 3)
    assert decoded_response.topics[2][1][0].error == (74 if version >= 9 else 6)
    assert decoded_response.topics[0][1][0].error == 0


@EVERY_VERSION
def test_new_leader_endpoints_have_mapped_addresses(version: int) -> None:
    made = exchange(version)
    made.endpoints = {node_id: Endpoint(node_id, "real", 9092, "a") for node_id in (1, 9, 2)}

    pieces = made.answer(sheet_of(made), map_address)

    expected = (Endpoint(1, "127.0.0.1", 9094, "a"), Endpoint(2, "127.0.0.1", 9095, "a")) if version >= 16 else ()
    assert read(version, pieces).endpoints == expected
    assert b"real" not in joined(pieces)


@EVERY_VERSION
def test_a_refusal_is_as_a_broker_makes_it(version: int) -> None:
    """Below v13 the error is repeated for every partition, below v7 it is only there."""
    made = exchange(version)
    orders, payments = names(version)

    decoded_response = read(version, made.refusal(ErrorCode.cluster_authorization_failed))

    assert decoded_response.error == (31 if version >= 7 else 0)
    assert errors(decoded_response) == ({31} if version < 13 else set())
    expected = [(orders, [3, 0]), (payments, [1]), (orders, [2])] if version < 13 else []
    assert shape(decoded_response) == expected


@pytest.mark.parametrize("isolation", [0, 1])
@EVERY_VERSION
def test_unreadable_every_partition_has_the_error(version: int, isolation: int) -> None:
    made = exchange(version, isolation=isolation)
    orders, payments = names(version)

    decoded_response = read(version, made.unreadable(made.encode_errors(UNKNOWN_TOPIC_ID)))

    assert decoded_response.error == 0
    assert shape(decoded_response) == [(orders, [3, 0]), (payments, [1]), (orders, [2])]
    assert errors(decoded_response) == {100 if version >= 13 else 3}
    assert decoded_response.topics[0][1][0].high_watermark == -1


@EVERY_VERSION
@pytest.mark.parametrize("error", [ErrorCode.none, ErrorCode.fetch_session_id_not_found])
def test_empty_it_has_no_partitions(version: int, error: ErrorCode) -> None:
    made = exchange(version)
    if error:
        made.context = Refused(made.request, error)
    made.throttle_ms = 5

    decoded_response = read(version, made.empty())

    assert decoded_response.topics == ()
    assert decoded_response.throttle_ms == 5
    assert decoded_response.error == (error if version >= 7 else 0)


def test_records_go_out_as_the_very_same_view() -> None:
    made = exchange(12)
    records = memoryview(b"records")
    made.add(PAYMENTS, PartitionReply(1, 0, 9, records=records))

    assert any(piece is records for piece in made.answer(sheet_of(made), map_address))


@pytest.mark.parametrize(("longest_s", "until_s"), [(float("inf"), 10.5), (1.0, 10.5), (0.1, 10.1)])
def test_it_waits_as_long_as_the_client_does_or_for_less(longest_s: float, until_s: float) -> None:
    assert attrs.evolve(exchange(12), longest_s=longest_s).deadline_s == until_s


@pytest.mark.parametrize("replica_id", [0, 1, 2**31 - 1])
def test_followers_are_refused(replica_id: int) -> None:
    with pytest.raises(ClientProtocolError, match=f"replica id {replica_id}"):
        check_request(attrs.evolve(request(12, []), replica_id=replica_id))


@pytest.mark.parametrize("replica_id", [-1, -2])
@pytest.mark.parametrize("epoch", [-1, 0, 1, 2**31 - 1])
def test_consumers_are_let_through(replica_id: int, epoch: int) -> None:
    check_request(attrs.evolve(request(12, []), replica_id=replica_id, session_epoch=epoch))


def test_an_epoch_that_cannot_be_is_refused() -> None:
    with pytest.raises(ClientProtocolError, match="epoch -2"):
        check_request(attrs.evolve(request(12, []), session_epoch=-2))


@EVERY_VERSION
def test_has_epoch_distinguishes_partitions_with_and_without_epoch(version: int) -> None:
    orders, payments = names(version)
    asked = [
        (orders, {0: FetchPartition(0, 1)}),
        (payments, {1: FetchPartition(0, 1, epoch=4)}),
        (orders, {1: FetchPartition(0, 1, epoch=4)}),
    ]
    made = Exchange(request(version, asked), started_s=0.0)

    have_epochs = [made.has_epoch(orders, 0), made.has_epoch(orders, 1), made.has_epoch(payments, 1)]
    assert have_epochs == [False, version >= 9, version >= 9]
    assert not made.has_epoch(payments, 0)
