"""Topics, configurations, access control, log folders, delegation tokens, epochs, and joining a group."""

import datetime
import struct
from typing import Any

import pytest

from proxy.convert.versions.table import UPGRADES
from tests.convert.versions.old import admin, encoded, group
from tests.convert.versions.upgrading import Played, answer, asked, play, request

LITERAL = 3
NEW_YEAR = datetime.datetime(2018, 1, 1, tzinfo=datetime.UTC)


def decoded(kind: Any, played: Played) -> Any:
    it = kind.decode(played.body)
    assert it.encode() == played.body
    return it


# --------------------------------------------------------------------------------------------------- topics


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (0, encoded(admin.CreateTopicsRequest_v0, [("t", 3, 1, [], [("k", "v")])], 1000)),
        (1, encoded(admin.CreateTopicsRequest_v1, [("t", 3, 1, [], [("k", "v")])], 1000, False)),
    ],
)
def test_topics_are_created_and_not_only_validated(version: int, body: bytes) -> None:
    result = {"name": "t", "error_code": 36, "error_message": "there already"}

    played = play(19, version, body, [{"throttle_time": 7, "topics": [result]}])

    upgraded = asked(19, 2, played.bodies[0])
    (topic,) = upgraded.topics
    assert (topic.name, topic.num_partitions, topic.configs[0].value) == ("t", 3, "v")
    assert upgraded.timeout.total_seconds() == 1
    assert not upgraded.validate_only
    if version:
        assert decoded(admin.CreateTopicsResponse_v1, played).topic_errors == [("t", 36, "there already")]
    else:
        assert decoded(admin.CreateTopicsResponse_v0, played).topic_errors == [("t", 36)]


def test_topics_that_are_only_to_be_validated_are() -> None:
    body = encoded(admin.CreateTopicsRequest_v1, [("t", 3, 1, [], [])], 1000, True)

    played = play(19, 1, body, [{"topics": []}])

    assert asked(19, 2, played.bodies[0]).validate_only


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (41, 41), (89, -1)])
def test_errors_of_topics_that_the_client_cannot_know_are_unknown_ones(code: int, expected: int) -> None:
    body = encoded(admin.CreateTopicsRequest_v0, [("t", 3, 1, [], [])], 1000)

    played = play(19, 0, body, [{"topics": [{"name": "t", "error_code": code}]}])

    assert decoded(admin.CreateTopicsResponse_v0, played).topic_errors == [("t", expected)]


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (3, 3), (73, 42)])
def test_topics_are_deleted(code: int, expected: int) -> None:
    body = encoded(admin.DeleteTopicsRequest_v0, ["t"], 1000)

    played = play(20, 0, body, [{"throttle_time": 7, "responses": [{"name": "t", "error_code": code}]}])

    assert played.bodies == [body]
    assert decoded(admin.DeleteTopicsResponse_v0, played).topic_error_codes == [("t", expected)]


# ------------------------------------------------------------------------------------------- configurations


@pytest.mark.parametrize(("source", "is_default"), [(1, False), (2, False), (3, False), (4, False), (5, True)])
def test_config_is_default_only_if_its_source_is_the_default_config(source: int, is_default: bool) -> None:
    body = encoded(admin.DescribeConfigsRequest_v0, [(2, "t", ["a"])])
    synonym = {"name": "a", "value": "1", "source": 5}
    config = {"name": "a", "value": "1", "config_source": source, "read_only": True, "synonyms": [synonym]}
    result = {"resource_type": 2, "resource_name": "t", "configs": [config], "error_message": "m"}

    played = play(32, 0, body, [{"throttle_time": 7, "results": [result]}])

    upgraded = asked(32, 1, played.bodies[0])
    assert [(each.resource_name, each.configuration_keys) for each in upgraded.resources] == [("t", ("a",))]
    assert not upgraded.include_synonyms
    expected = decoded(admin.DescribeConfigsResponse_v0, played)
    assert expected.throttle_time_ms == 7
    assert expected.resources == [(0, "m", 2, "t", [("a", "1", True, is_default, False)])]


# ------------------------------------------------------------------------------------------- access control


def test_acls_are_made_for_literal_names() -> None:
    body = encoded(admin.CreateAclsRequest_v0, [(2, "t", "User:a", "*", 3, 3)])

    played = play(30, 0, body, [{"throttle_time": 7, "results": [{"error_code": 31, "error_message": "no"}]}])

    (creation,) = asked(30, 1, played.bodies[0]).creations
    assert (creation.resource_name, creation.resource_pattern_type, creation.principal) == ("t", LITERAL, "User:a")
    expected = decoded(admin.CreateAclsResponse_v0, played)
    assert (expected.throttle_time_ms, expected.creation_responses) == (7, [(31, "no")])


def test_acls_of_literal_names_are_described() -> None:
    body = encoded(admin.DescribeAclsRequest_v0, 2, None, "User:a", None, 1, 1)
    acl = {"principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
    resource = {"resource_type": 2, "resource_name": "t", "pattern_type": LITERAL, "acls": [acl]}

    played = play(29, 0, body, [{"throttle_time": 7, "resources": [resource]}])

    upgraded = asked(29, 1, played.bodies[0])
    assert (upgraded.resource_name_filter, upgraded.pattern_type_filter, upgraded.principal_filter) == (
        None,
        LITERAL,
        "User:a",
    )
    expected = decoded(admin.DescribeAclsResponse_v0, played)
    assert expected.resources == [(2, "t", [("User:a", "*", 3, 3)])]
    assert expected.throttle_time_ms == 7


def test_acls_of_literal_names_are_deleted() -> None:
    body = encoded(admin.DeleteAclsRequest_v0, [(2, "t", None, None, 1, 1)])
    match = {"resource_type": 2, "resource_name": "t", "pattern_type": LITERAL, "principal": "User:a", "host": "*"}
    result = {"matching_acls": [{**match, "operation": 3, "permission_type": 3}]}

    played = play(31, 0, body, [{"throttle_time": 7, "filter_results": [result]}])

    (deleted,) = asked(31, 1, played.bodies[0]).filters
    assert (deleted.resource_name_filter, deleted.pattern_type_filter) == ("t", LITERAL)
    expected = decoded(admin.DeleteAclsResponse_v0, played)
    assert expected.filter_responses == [(0, None, [(0, None, 2, "t", "User:a", "*", 3, 3)])]


# ----------------------------------------------------------------------------------------- joining a group


def member(kind: Any, **timeouts: int) -> bytes:
    said = {"group": "g", "session_timeout": 6000, "member_id": "", "protocol_type": "consumer", **timeouts}
    return encoded(kind, **said, group_protocols=[("range", b"subscription")])


@pytest.mark.parametrize(
    ("version", "body", "rebalance_s"),
    [
        (0, member(group.JoinGroupRequest_v0), 6),
        (1, member(group.JoinGroupRequest_v1, rebalance_timeout=9000), 9),
    ],
)
def test_session_timeout_is_default_of_rebalance_timeout(version: int, body: bytes, rebalance_s: int) -> None:
    joined = {"throttle_time": 7, "generation_id": 1, "protocol_name": "range", "leader": "m", "member_id": "m"}

    played = play(11, version, body, [{**joined, "members": [{"member_id": "m", "metadata": b"subscription"}]}])

    upgraded = asked(11, 2, played.bodies[0])
    assert (upgraded.session_timeout.total_seconds(), upgraded.rebalance_timeout.total_seconds()) == (
        6,
        rebalance_s,
    )
    assert [(each.name, each.metadata) for each in upgraded.protocols] == [("range", b"subscription")]
    expected = decoded(group.JoinGroupResponse_v1 if version else group.JoinGroupResponse_v0, played)
    assert (expected.error_code, expected.generation_id, expected.members) == (0, 1, [("m", b"subscription")])


@pytest.mark.parametrize(("code", "expected"), [(25, 25), (79, -1), (81, -1), (999, -1)])
def test_errors_of_joining_that_the_client_cannot_know_are_unknown_ones(code: int, expected: int) -> None:
    steps = UPGRADES[11, 0].steps
    assert steps is not None
    running = steps(memoryview(member(group.JoinGroupRequest_v0)))
    next(running)

    with pytest.raises(StopIteration) as done:
        running.send(memoryview(bytes(4) + struct.pack(">h", code) + b"rest"))

    assert b"".join(done.value.value) == struct.pack(">h", expected) + b"rest"


# --------------------------------------------------------------------------------------------------- epochs


@pytest.mark.parametrize("version", [0, 1])
def test_offset_for_leader_epoch_returns_the_end_offset(version: int) -> None:
    """Layout: topics: array of (name | array of (partition | leader epoch)); answered with (error | partition |
    [epoch v1] | end offset)."""
    body = struct.pack(">ih1siii", 1, 1, b"t", 1, 4, 9)
    end = {"partition": 4, "leader_epoch": 8, "end_offset": 100, "error_code": 75}

    played = play(23, version, body, [{"throttle_time": 7, "topics": [{"topic": "t", "partitions": [end]}]}])

    ((partition,),) = (topic.partitions for topic in asked(23, 2, played.bodies[0]).topics)
    assert (partition.partition, partition.leader_epoch, partition.current_leader_epoch) == (4, 9, -1)
    epoch = struct.pack(">i", 8) if version else b""
    assert played.body == struct.pack(">ih1si", 1, 1, b"t", 1) + struct.pack(">hi", -1, 4) + epoch + struct.pack(
        ">q", 100
    )


# ------------------------------------------------------------------------------------- layouts that stayed

SAME: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {
    34: (
        {"dirs": [{"path": "/data", "topics": [{"name": "t", "partitions": [0]}]}]},
        {"throttle_time": 7, "results": [{"topic_name": "t", "partitions": [{"partition_index": 0}]}]},
    ),
    35: (
        {"topics": [{"topic": "t", "partitions": [0]}]},
        {"throttle_time": 7, "results": [{"log_dir": "/data", "topics": []}]},
    ),
    38: (
        {"renewers": [], "max_lifetime": 5},
        {"hmac": b"h", "token_id": "i", "throttle_time": 7}
        | dict.fromkeys(("issue_timestamp", "expiry_timestamp", "max_timestamp"), NEW_YEAR),
    ),
    39: ({"hmac": b"h"}, {"throttle_time": 7, "expiry_timestamp": NEW_YEAR}),
    40: ({"hmac": b"h"}, {"throttle_time": 7, "expiry_timestamp": NEW_YEAR}),
    41: ({"owners": None}, {"tokens": [], "throttle_time": 7}),
}


@pytest.mark.parametrize("key", SAME)
def test_request_and_response_with_an_unchanged_layout_keep_their_bytes(key: int) -> None:
    question, reply = SAME[key]
    body = request(key, 1, question)

    played = play(key, 0, body, [reply])

    assert played.bodies == [body]
    assert played.body == answer(key, 1, reply)


@pytest.mark.parametrize("key", [*SAME, 29, 30, 31])
def test_clients_that_do_not_throttle_themselves_are_held_back(key: int) -> None:
    """Check v1; clients of v2 of the other APIs, which are upgraded to v1, throttle themselves (KIP-219)."""
    reply = SAME[key][1] if key in SAME else {"throttle_time": 7}

    assert UPGRADES[key, 0].throttle_ms(memoryview(answer(key, 1, reply))) == 7


@pytest.mark.parametrize(("key", "version"), [each for each in UPGRADES if each[0] not in (*SAME, 29, 30, 31)])
def test_other_upgrades_do_not_delay_responses(key: int, version: int) -> None:
    assert UPGRADES[key, version].throttle_ms(memoryview(struct.pack(">i", 7))) == 0
