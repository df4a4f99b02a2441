"""Every version of every message that the embedded brokers speak."""

import datetime

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode

from proxy.demo.broker import API_VERSIONS, KEYS
from proxy.demo.messages import build, encode_request, encode_response, read_request, read_response

EVERY = [(name, version) for name, (low, high) in API_VERSIONS.items() for version in range(low, high + 1)]


@pytest.mark.parametrize(("name", "version"), EVERY)
def test_omitted_fields_are_zero_or_default(name: str, version: int) -> None:
    key = KEYS[name]

    request = read_request(encode_request(key, version, 7, "me", {})[4:])
    correlation_id, response = read_response(key, version, encode_response(key, version, 9, {})[4:])

    assert (request.key, request.version, request.correlation_id, request.client_id) == (key, version, 7, "me")
    assert correlation_id == 9
    assert getattr(response, "error_code", ErrorCode.none) == ErrorCode.none


def test_fields_unknown_to_version_are_dropped() -> None:
    said = {"throttle_time": 250, "topics": [{"name": "t", "topic_id": None, "no_such_field": 1}], "nonsense": 2}

    old = build(load_response_schema(3, 0), said)
    new = build(load_response_schema(3, 12), said)

    assert not hasattr(old, "throttle_time")
    assert new.throttle_time == datetime.timedelta(milliseconds=250)
    assert [topic.name for topic in new.topics] == ["t"]


def test_null_arrays_stay_null() -> None:
    assert read_request(encode_request(3, 12, 1, None, {"topics": None})[4:]).body.topics is None
    assert read_request(encode_request(3, 12, 1, None, {"topics": []})[4:]).body.topics == ()
