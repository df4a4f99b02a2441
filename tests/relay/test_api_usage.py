"""The APIs that a client uses, and its software, as its requests show them."""

import struct
from collections.abc import Mapping
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.static.primitive import i16

from proxy.events import ClientRecord, UsedApi
from proxy.relay.commands import PASS, Reply
from proxy.wire import messages
from proxy.wire.apis import ApiKey
from tests.pieces import joined
from tests.relay.playbook import LONG_POLL, Part, Play, of_type
from tests.relay.solo import Solo
from tests.relay.upgrading import KAFKA_4, KAFKA_39, list_offsets, serving
from tests.wire.entities import made


def frame_of(key: int, version: int, **fields: Any) -> bytes:
    kind: Any = load_request_schema(i16(key), i16(version))
    return messages.request_frame(1, "the-client", made(kind, **fields))


def record_of(relay: Solo) -> ClientRecord:
    record: ClientRecord | None = relay.client_record()
    assert record is not None
    return record


def test_each_api_and_version_counts_with_its_requests_and_their_bytes() -> None:
    play = Play()
    frame = frame_of(ApiKey.METADATA, 1, topics=())
    for _ in range(2):
        play.request(frame)
    play.request(frame_of(ApiKey.METADATA, 5, topics=(), allow_auto_topic_creation=False))

    record = record_of(play.relay)

    assert record.client_id == "the-client"
    assert record.apis[0] == UsedApi(ApiKey.METADATA, 1, 1, 2, 2 * len(frame))
    assert [(each.version, each.requests) for each in record.apis] == [(1, 2), (5, 1)]


def test_client_software_is_taken_from_its_api_versions_request() -> None:
    play = Play()
    play.request(
        frame_of(ApiKey.API_VERSIONS, 3, client_software_name="apache-kafka-java", client_software_version="3.9.1")
    )

    assert (record_of(play.relay).software, record_of(play.relay).is_guess) == ("apache-kafka-java 3.9.1", False)


def test_one_that_does_not_is_guessed_from_the_newest_fetch_that_it_sends() -> None:
    play = Play()
    play.request(frame_of(ApiKey.API_VERSIONS, 0))
    assert (record_of(play.relay).software, record_of(play.relay).is_guess) == ("", True)

    play.fetch({0: 0}, version=4)

    assert (record_of(play.relay).software, record_of(play.relay).is_guess) == ("speaks as Kafka 0.11", True)


def test_fetch_is_recorded_with_the_version_that_the_leader_is_sent() -> None:
    play = Play(broker_fetch=17)
    play.fetch({0: 0}, version=4)
    play.open(LONG_POLL)
    play.answer({0: Part()})

    (fetch,) = record_of(play.relay).apis

    assert (fetch.key, fetch.version, fetch.upgraded_to, fetch.requests) == (ApiKey.FETCH, 4, 17, 1)


@pytest.mark.parametrize(("serving_broker", "to"), [(KAFKA_4, 1), (KAFKA_39, 0)])
def test_removed_version_is_recorded_with_the_version_it_is_upgraded_to(
    serving_broker: Mapping[int, tuple[int, int]], to: int
) -> None:
    play = Play()
    play.request(list_offsets(1))
    play.open(PASS)
    play.handle(serving(serving_broker))

    (used,) = record_of(play.relay).apis

    assert (used.key, used.version, used.upgraded_to) == (ApiKey.LIST_OFFSETS, 0, to)


def test_made_up_versions_of_api_versions_count_as_one() -> None:
    play = Play()
    frame = frame_of(ApiKey.API_VERSIONS, 0)
    versions = [*range(5, 2**15), *range(-(2**15), 0)]
    for version in versions[:: len(versions) // 500]:
        (reply,) = of_type(Reply, play.request(frame[:6] + struct.pack(">h", version) + frame[8:]))
        assert joined(reply.pieces)[8:10] == b"\0\x23", "UNSUPPORTED_VERSION"
    play.request(frame)

    apis = record_of(play.relay).apis

    assert [(each.key, each.version, each.upgraded_to) for each in apis] == [(18, 0, 0), (18, 32_767, 32_767)]
    assert apis[1].requests >= 500


def test_client_record_is_absent_if_recording_is_disabled() -> None:
    play = Play(records_exchanges=False)
    play.fetch({0: 0})

    assert play.relay.client_record() is None


def test_connection_without_requests_has_no_client_record() -> None:
    assert Play().relay.client_record() is None
