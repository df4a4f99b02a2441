"""ListOffsets v0: the meaning of "before", and the number of offsets."""

from typing import Any

import pytest

from tests.convert.versions import upgrading
from tests.convert.versions.old import encoded, offset
from tests.convert.versions.upgrading import play

LATEST, EARLIEST = -1, -2
LOG = {LATEST: 100, EARLIEST: 20, 5_000: 60}


def broker(request: Any) -> dict[str, Any]:
    """Every partition's log begins at 20, ends at 100, and has a record of the time 5,000 at 60."""
    assert request.replica_id == -1
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": each.partition_index, "offset": LOG.get(each.timestamp, -1)}
                    for each in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def asked(*partitions: tuple[int, int, int], topic: str = "t") -> bytes:
    """*partitions*: index, timestamp, most offsets."""
    return encoded(offset.OffsetRequest_v0, -1, [(topic, list(partitions))])


def offsets(body: bytes | None) -> list[tuple[int, int, list[int]]]:
    """Index, error, offsets."""
    decoded = offset.OffsetResponse_v0.decode(body)
    assert decoded.encode() == body
    return [partition for _, partitions in decoded.topics for partition in partitions]


@pytest.mark.parametrize(
    ("timestamp", "most", "expected"),
    [
        (LATEST, 1, [100]),
        (LATEST, 2, [100, 20]),
        (LATEST, 1000, [100, 20]),
        (EARLIEST, 1, [20]),
        (EARLIEST, 10, [20]),
        (5_000, 1, [60]),
        (5_000, 10, [60]),
        (9_000, 1, [100]),
        (LATEST, 0, []),
        (LATEST, -1, []),
    ],
)
def test_the_offsets_of_one_partition(timestamp: int, most: int, expected: list[int]) -> None:
    played = play(2, 0, asked((0, timestamp, most)), broker)

    assert offsets(played.body) == [(0, 0, expected)]


def test_a_log_that_is_empty_has_one_offset_however_many_are_wanted() -> None:
    answers = [
        {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 7}]}]},
        {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 7}]}]},
    ]

    assert offsets(play(2, 0, asked((0, LATEST, 5)), answers).body) == [(0, 0, [7])]


def test_response_keeps_the_client_partition_order_with_as_few_requests_as_possible() -> None:
    played = play(2, 0, asked((2, 9_000, 1), (0, LATEST, 2), (1, EARLIEST, 1)), broker)

    assert offsets(played.body) == [(2, 0, [100]), (0, 0, [100, 20]), (1, 0, [20])]
    assert len(played.bodies) == 3


def test_one_offset_per_partition_needs_one_request() -> None:
    played = play(2, 0, asked((0, LATEST, 1), (1, EARLIEST, 1), (2, 5_000, 1)), broker)

    assert len(played.bodies) == 1


def test_partition_named_twice_is_twice_in_the_response() -> None:
    """A newer broker refuses such a request."""
    played = play(2, 0, asked((0, LATEST, 1), (0, EARLIEST, 1)), broker)

    assert offsets(played.body) == [(0, 0, [100]), (0, 0, [20])]


def test_timestamp_below_earliest_is_rejected_and_not_sent_to_the_broker() -> None:
    played = play(2, 0, asked((0, -3, 1), (1, LATEST, 1)), broker)

    assert offsets(played.body) == [(0, 35, []), (1, 0, [100])]
    assert [part.partition_index for part in _partitions(played.bodies)] == [1]


def _partitions(bodies: list[bytes]) -> list[Any]:
    return [part for body in bodies for topic in upgrading.asked(2, 1, body).topics for part in topic.partitions]


@pytest.mark.parametrize(
    ("code", "expected"), [(3, 3), (6, 6), (29, 29), (56, 6), (74, 6), (75, 6), (78, 5), (43, -1), (42, -1)]
)
def test_error_maps_to_a_code_that_the_client_knows_without_offsets(code: int, expected: int) -> None:
    answers = [{"topics": [{"name": "t", "partitions": [{"partition_index": 0, "error_code": code}]}]}]

    assert offsets(play(2, 0, asked((0, LATEST, 1)), answers).body) == [(0, expected, [])]


def test_partition_missing_in_the_broker_response_gets_an_error() -> None:
    assert offsets(play(2, 0, asked((0, LATEST, 1)), [{"topics": []}]).body) == [(0, -1, [])]


def test_latest_offset_is_returned_if_the_earliest_has_an_error() -> None:
    answers = [
        {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "error_code": 6}]}]},
        {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 7}]}]},
    ]

    assert offsets(play(2, 0, asked((0, LATEST, 5)), answers).body) == [(0, 0, [7])]
