"""OffsetCommit v0 and v1, OffsetFetch v0: to the coordinator, wherever the client has sent them."""

from typing import Any

import pytest

from proxy.convert.versions.upgrade import SendToBroker, SendToCoordinator
from tests.convert.versions.old import commit, encoded
from tests.convert.versions.upgrading import asked, play

NOT_COORDINATOR, LOADING, NOT_AVAILABLE = 16, 14, 15
COMMIT_V0 = encoded(commit.OffsetCommitRequest_v0, "g", [("t", [(0, 10, "m"), (1, 11, "")])])
COMMIT_V1 = encoded(commit.OffsetCommitRequest_v1, "g", 3, "me", [("t", [(0, 10, 1234, "m"), (1, 11, -1, None)])])
FETCH_V0 = encoded(commit.OffsetFetchRequest_v0, "g", [("t", [0, 1])])


def committed(*codes: int) -> dict[str, Any]:
    partitions = [{"partition_index": index, "error_code": code} for index, code in enumerate(codes)]
    return {"topics": [{"name": "t", "partitions": partitions}]}


def fetched(*expected: tuple[int, int, str | None]) -> dict[str, Any]:
    """Offset, error, metadata."""
    partitions = [
        {"partition_index": index, "committed_offset": offset, "error_code": code, "metadata": metadata}
        for index, (offset, code, metadata) in enumerate(expected)
    ]
    return {"topics": [{"name": "t", "partitions": partitions}]}


def codes_in(body: bytes | None) -> list[int]:
    decoded = commit.OffsetCommitResponse_v0.decode(body)
    assert decoded.encode() == body
    return [code for _, partitions in decoded.topics for _, code in partitions]


def test_a_commit_v0_belongs_to_no_member_and_is_kept_as_long_as_the_broker_says() -> None:
    played = play(8, 0, COMMIT_V0, [committed(0, 0)])

    request = asked(8, 2, played.bodies[0])
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", -1, "")
    assert request.retention_time.total_seconds() == -0.001
    (topic,) = request.topics
    assert [(p.partition_index, p.committed_offset, p.committed_metadata) for p in topic.partitions] == [
        (0, 10, "m"),
        (1, 11, ""),
    ]
    assert codes_in(played.body) == [0, 0]


def test_a_commit_v1_keeps_its_member_and_loses_its_times() -> None:
    played = play(8, 1, COMMIT_V1, [committed(0, 0)])

    request = asked(8, 2, played.bodies[0])
    assert (request.group_id, request.generation_id_or_member_epoch, request.member_id) == ("g", 3, "me")
    (topic,) = request.topics
    assert [(p.partition_index, p.committed_offset, p.committed_metadata) for p in topic.partitions] == [
        (0, 10, "m"),
        (1, 11, None),
    ]
    assert codes_in(played.body) == [0, 0]


@pytest.mark.parametrize(("version", "body"), [(0, COMMIT_V0), (1, COMMIT_V1)])
def test_commit_goes_to_the_client_broker_and_after_error_16_to_the_coordinator(version: int, body: bytes) -> None:
    played = play(8, version, body, [committed(NOT_COORDINATOR, NOT_COORDINATOR), committed(0, 0)])

    first, second = played.steps
    assert isinstance(first, SendToBroker)
    assert isinstance(second, SendToCoordinator)
    assert (second.group, second.is_retry) == ("g", False)
    assert played.bodies[0] == played.bodies[1]
    assert codes_in(played.body) == [0, 0]


@pytest.mark.parametrize("code", [NOT_COORDINATOR, LOADING, NOT_AVAILABLE])
def test_a_coordinator_that_is_not_ready_or_none_any_more_is_found_again(code: int) -> None:
    moved = committed(code, code)
    played = play(8, 1, COMMIT_V1, [moved, moved, None, committed(0, 0)])

    assert [step.is_retry for step in played.steps if isinstance(step, SendToCoordinator)] == [False, True, True]
    assert codes_in(played.body) == [0, 0]


@pytest.mark.parametrize(("version", "body", "expected"), [(0, COMMIT_V0, -1), (1, COMMIT_V1, 16)])
def test_repeated_not_coordinator_maps_to_a_code_of_the_version(version: int, body: bytes, expected: int) -> None:
    moved = committed(NOT_COORDINATOR, NOT_COORDINATOR)

    assert codes_in(play(8, version, body, [moved] * 6).body) == [expected, expected]


@pytest.mark.parametrize(("version", "body", "expected"), [(0, COMMIT_V0, -1), (1, COMMIT_V1, 15)])
def test_unavailable_coordinator_maps_to_an_error_code_of_the_version(
    version: int, body: bytes, expected: int
) -> None:
    moved = committed(NOT_COORDINATOR, NOT_COORDINATOR)

    assert codes_in(play(8, version, body, [moved, *[None] * 5]).body) == [expected, expected]


@pytest.mark.parametrize(
    ("version", "body", "code", "expected"),
    [
        (0, COMMIT_V0, 12, 12),
        (0, COMMIT_V0, 25, -1),
        (0, COMMIT_V0, 30, -1),
        (1, COMMIT_V1, 22, 22),
        (1, COMMIT_V1, 25, 25),
        (1, COMMIT_V1, 27, 27),
        (1, COMMIT_V1, 82, -1),
    ],
)
def test_commit_error_maps_to_a_code_that_the_version_knows(
    version: int, body: bytes, code: int, expected: int
) -> None:
    assert codes_in(play(8, version, body, [committed(0, code)]).body) == [0, expected]


def offsets_in(body: bytes | None) -> list[tuple[int, str, int]]:
    """Offset, metadata, error."""
    decoded = commit.OffsetFetchResponse_v0.decode(body)
    assert decoded.encode() == body
    return [(offset, text, code) for _, parts in decoded.topics for _, offset, text, code in parts]


def test_missing_offset_is_returned_as_error_3() -> None:
    """Clients of v0 look for the error, not for -1: kafka-python and Sarama would begin at -1."""
    played = play(9, 0, FETCH_V0, [fetched((5, 0, "m"), (-1, 0, ""))])

    assert played.bodies == [FETCH_V0]
    assert offsets_in(played.body) == [(5, "m", 0), (-1, "", 3)]


def test_metadata_is_never_null() -> None:
    assert offsets_in(play(9, 0, FETCH_V0, [fetched((5, 0, None), (6, 0, "m"))]).body) == [(5, "", 0), (6, "m", 0)]


def test_offset_fetch_is_redirected_to_the_coordinator() -> None:
    moved = fetched((-1, NOT_COORDINATOR, ""), (-1, NOT_COORDINATOR, ""))
    played = play(9, 0, FETCH_V0, [moved, fetched((5, 0, ""), (6, 0, ""))])

    assert isinstance(played.steps[1], SendToCoordinator)
    assert offsets_in(played.body) == [(5, "", 0), (6, "", 0)]


def test_a_coordinator_of_offsets_that_is_never_found_is_an_unknown_error() -> None:
    moved = fetched((-1, LOADING, ""), (-1, LOADING, ""))

    assert offsets_in(play(9, 0, FETCH_V0, [moved] * 6).body) == [(-1, "", -1)] * 2
    assert offsets_in(play(9, 0, FETCH_V0, [moved, *[None] * 5]).body) == [(-1, "", -1)] * 2


def test_an_error_of_one_partition_is_no_missing_offset() -> None:
    assert offsets_in(play(9, 0, FETCH_V0, [fetched((-1, 29, ""), (4, 0, ""))]).body) == [(-1, "", -1), (4, "", 0)]
