"""Fetches of clients that cannot read all formats: their responses, and the fetches on their behalf."""

import random
from functools import partial

import pytest

from proxy.config import TopicSwitch
from proxy.errors import ErrorCode
from proxy.events import DamageRecord
from proxy.fetch.converting import Policy
from proxy.relay.commands import Command, EmitRecord, Reply, RunInThread
from proxy.wire.records import Codec
from tests import old_clients
from tests.old_clients import Heard, batch, fetch_frame
from tests.pieces import joined
from tests.relay.playbook import LONG_POLL, Part, Play, client_responses, of_type, parts_of, topology

OLD = range(4)
IDLE = Part()
LETTERS = [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"]
MESSAGE_BYTES = 35
"""The size of a message of format 1 with a value of one byte."""
LARGE_GZIP = batch(10, random.Random(1).randbytes(20_000), codec=Codec.GZIP)
"""More than is decompressed while others wait."""


def heard(commands: list[Command], version: int) -> list[dict[int, Heard]]:
    """Return the contents of each response in *commands*, by partition."""
    return [old_clients.heard(reply.pieces, version) for reply in of_type(Reply, commands)]


def asking(play: Play, version: int, offset: int, *, max_wait_ms: int = 500) -> None:
    """The client's first fetch of partition 0, as far as the broker has it."""
    play.request(fetch_frame(version, {0: offset}, max_wait_ms=max_wait_ms))
    play.open(LONG_POLL)


@pytest.mark.parametrize("version", OLD)
def test_a_client_hears_of_every_partition_in_the_layout_of_its_version(version: int) -> None:
    play = Play()

    play.request(fetch_frame(version, {2: 5, 0: 7}))
    play.open(LONG_POLL)
    play.wait(0.5)
    (answer,) = heard(play.answer({0: IDLE, 2: Part(high_watermark=5)}), version)

    assert list(answer) == [2, 0]
    assert {p: (each.error, each.high_watermark) for p, each in answer.items()} == {2: (0, 5), 0: (0, 100)}


@pytest.mark.parametrize("version", OLD)
def test_records_come_as_messages_of_the_format_that_the_version_reads(version: int) -> None:
    play = Play()
    asking(play, version, 10)

    (answer,) = heard(play.answer({0: Part(records=batch(10, b"a", b"b") + batch(12, b"c"))}), version)

    times = [None] * 3 if version < 2 else [1_010, 1_011, 1_012]
    expected = zip((10, 11, 12), (b"a", b"b", b"c"), times, strict=True)
    assert [(each.offset, each.value, each.timestamp_ms) for each in answer[0].records] == list(expected)


@pytest.mark.parametrize("version", OLD)
def test_records_invisible_to_client_are_skipped_within_its_max_wait(version: int) -> None:
    play = Play()
    asking(play, version, 10)

    assert heard(play.answer({0: Part(records=batch(10, b"marker", is_control=True))}), version) == []
    (answer,) = heard(play.answer({0: Part(records=batch(11, b"seen"))}), version)

    assert [dict(asked.offsets) for asked in play.asked] == [{0: 10}, {0: 11}]
    assert [record.offset for record in answer[0].records] == [11]


def test_skipped_offset_is_kept_until_client_fetches_another_offset() -> None:
    play = Play()
    asking(play, 2, 10, max_wait_ms=0)
    (nothing,) = heard(play.answer({0: Part(records=batch(10, b"marker", is_control=True))}), 2)
    play.request(fetch_frame(2, {0: 10}, max_wait_ms=0))
    play.answer({0: IDLE})
    play.request(fetch_frame(2, {0: 4}, max_wait_ms=0))
    play.answer({0: IDLE})
    play.request(fetch_frame(2, {0: 10}, max_wait_ms=0))

    assert nothing[0].records == ()
    assert [dict(asked.offsets)[0] for asked in play.asked] == [10, 11, 4, 10]


@pytest.mark.parametrize("error", [0, ErrorCode.topic_authorization_failed])
@pytest.mark.parametrize("max_wait_ms", [0, 500])
def test_a_marker_over_the_limit_keeps_no_other_partition_out_of_the_response(error: int, max_wait_ms: int) -> None:
    play = Play()
    play.request(fetch_frame(3, {0: 10, 1: 20, 2: 0}, max_wait_ms=max_wait_ms, partition_max_bytes=1))
    play.open(LONG_POLL)

    marker, other = Part(records=batch(10, b"marker", is_control=True)), Part(records=batch(20, b"seen"))
    (answer,) = heard(play.answer({0: marker, 1: other, 2: Part(error=error)}), 3)

    assert [[record.value for record in each.records] for each in answer.values()] == [[], [b"seen"], []]
    assert [each.error for each in answer.values()] == [0, 0, error]


def test_a_marker_is_passed_by_before_the_error_of_another_partition_is_delivered() -> None:
    play = Play()
    play.request(fetch_frame(3, {0: 10, 1: 20}))
    play.open(LONG_POLL)

    marker, failed = Part(records=batch(10, b"marker", is_control=True)), Part(error=ErrorCode.offset_out_of_range)
    assert heard(play.answer({0: marker, 1: failed}), 3) == []
    (answer,) = heard(play.answer({0: Part(records=batch(11, b"seen"))}), 3)

    assert [record.value for record in answer[0].records] == [b"seen"]
    assert answer[1].error == ErrorCode.offset_out_of_range


def test_a_topic_made_again_is_read_from_where_the_client_is() -> None:
    play = Play()
    asking(play, 2, 10, max_wait_ms=0)
    play.answer({0: Part(records=batch(10, b"marker", is_control=True))})

    play.known = topology(epoch=6)
    play.request(fetch_frame(2, {0: 10}, max_wait_ms=0))

    assert [dict(asked.offsets)[0] for asked in play.asked] == [10, 10]


def test_out_of_range_is_returned_only_for_offset_that_client_requested() -> None:
    play = Play()
    asking(play, 2, 10)
    play.answer({0: Part(records=batch(10, b"marker", is_control=True))})

    assert heard(play.answer({0: Part(error=1, high_watermark=-1)}), 2) == []
    (answer,) = heard(play.answer({0: Part(error=1, high_watermark=-1)}), 2)

    assert [dict(asked.offsets)[0] for asked in play.asked] == [10, 11, 10]
    assert answer[0].error == ErrorCode.offset_out_of_range


def test_out_of_range_after_seek_is_returned_at_once() -> None:
    play = Play()
    asking(play, 2, 10, max_wait_ms=0)
    play.answer({0: Part(records=batch(10, b"marker", is_control=True))})

    play.request(fetch_frame(2, {0: 4}))
    (answer,) = heard(play.answer({0: Part(error=1, high_watermark=-1)}), 2)

    assert answer[0].error == ErrorCode.offset_out_of_range


@pytest.mark.parametrize("version", OLD)
def test_a_damaged_batch_is_an_error_and_never_a_message(version: int) -> None:
    play = Play()
    asking(play, version, 10)
    damaged = bytearray(batch(10, b"a value that is long enough"))
    damaged[-5] ^= 1

    commands = play.answer({0: Part(records=bytes(damaged))})
    (answer,) = heard(commands, version)

    assert (answer[0].error, answer[0].records) == (ErrorCode.corrupt_message, ())
    (record,) = [note.record for note in of_type(EmitRecord, commands) if isinstance(note.record, DamageRecord)]
    assert (record.node, record.topic, record.partition, record.offset) == (1, "t", 0, 10)


@pytest.mark.parametrize("version", OLD)
@pytest.mark.parametrize(("switch", "error"), [("on", 0), ("off", 35), ("on,topic:t", 35), ("off,topic:t", 0)])
def test_where_conversion_is_off_the_client_gets_the_error_that_brokers_gave(
    version: int, switch: str, error: int
) -> None:
    play = Play(policy=Policy(down_conversion=TopicSwitch.parse(switch)))

    commands = play.request(fetch_frame(version, {0: 10}))
    commands += play.open(LONG_POLL)
    commands += play.answer({0: Part(records=batch(10, b"a"))}) if not error else []
    (answer,) = heard(commands, version)

    assert answer[0].error == error
    assert bool(answer[0].records) == (not error)


@pytest.mark.parametrize(
    ("version", "committed", "isolation"), [(0, True, 1), (3, True, 1), (3, False, 0), (4, True, 0)]
)
def test_clients_that_cannot_choose_read_as_they_are_set_to(version: int, committed: bool, isolation: int) -> None:
    play = Play(policy=Policy(committed=committed))

    if version < 4:
        asking(play, version, 10)
    else:
        play.fetch({0: 10}, version=version)
        play.open(LONG_POLL)

    assert [asked.isolation for asked in play.asked] == [isolation]


def test_aborted_records_are_filtered_for_read_committed_clients() -> None:
    play = Play(policy=Policy(committed=True))
    asking(play, 2, 10)
    records = (
        batch(10, b"aborted", producer_id=8)
        + batch(11, b"kept")
        + batch(12, b"\0\0\0\0", is_control=True, producer_id=8)
    )

    (answer,) = heard(play.answer({0: Part(records=records, aborted=((8, 10),))}), 2)

    assert [record.value for record in answer[0].records] == [b"kept"]


@pytest.mark.parametrize("version", [2, 3])
def test_converted_records_over_a_partition_limit_are_delivered_from_the_log_later(version: int) -> None:
    play = Play()
    limit = 6 * MESSAGE_BYTES
    fetch = partial(fetch_frame, version, max_wait_ms=500, partition_max_bytes=limit)
    play.request(fetch({0: 10}))
    play.open(LONG_POLL)

    (first,) = heard(play.answer({0: Part(records=batch(10, *LETTERS[:4]) + batch(14, *LETTERS[4:]))}), version)
    (second,) = heard(play.request(fetch({0: 14})), version)

    assert [each.offset for each in first[0].records] == [10, 11, 12, 13]
    assert [each.offset for each in second[0].records] == [14, 15, 16, 17]


def test_partition_without_room_for_converted_records_is_first_in_the_next_response() -> None:
    play = Play()
    fetch = partial(fetch_frame, 3, max_wait_ms=500, max_bytes=6 * MESSAGE_BYTES)
    play.request(fetch({0: 10, 1: 10}))
    play.open(LONG_POLL)

    records = batch(10, *LETTERS[:4])

    (first,) = heard(play.answer({p: Part(records=records, high_watermark=14) for p in (0, 1)}), 3)
    play.request(fetch({0: 14, 1: 10}))
    (second,) = heard(play.answer({p: Part(high_watermark=14) for p in (0, 1)}), 3)

    assert {p: len(each.records) for p, each in first.items()} == {0: 4, 1: 0}
    assert {p: len(each.records) for p, each in second.items()} == {0: 0, 1: 4}


@pytest.mark.parametrize("version", range(4, 19))
def test_zstd_is_recompressed_only_for_versions_that_cannot_read_it(version: int) -> None:
    play = Play()
    records = batch(10, *[b"v" * 100] * 3, codec=Codec.ZSTD)

    play.fetch({0: 10}, version=version)
    play.open(LONG_POLL)
    commands = play.answer({0: Part(records=records)})
    (answer,) = client_responses(commands, version=version)

    came = bytes(answer.responses[0].partitions[0].records)
    assert (came == records) == (version >= 10)
    assert came[22] & 7 == (Codec.ZSTD if version >= 10 else Codec.GZIP)


@pytest.mark.parametrize("version", range(10))
def test_zstd_may_be_refused_as_brokers_did(version: int) -> None:
    play = Play(policy=Policy(zstd=None))
    records = batch(10, *[b"v" * 100] * 3, codec=Codec.ZSTD)

    if version < 4:
        asking(play, version, 10)
        (old,) = heard(play.answer({0: Part(records=records)}), version)
        error = old[0].error
    else:
        play.fetch({0: 10}, version=version)
        play.open(LONG_POLL)
        (answer,) = client_responses(play.answer({0: Part(records=records)}), version=version)
        error, _ = parts_of(answer)[0]

    assert error == ErrorCode.unsupported_compression_type


@pytest.mark.parametrize("version", [4, 9, 18])
def test_records_that_need_no_conversion_are_handed_on_as_they_came(version: int) -> None:
    play = Play()
    records = batch(10, b"a", b"b")
    play.fetch({0: 10}, version=version)
    play.open(LONG_POLL)

    commands = play.answer({0: Part(records=records)})

    assert of_type(RunInThread, commands) == []
    (reply,) = of_type(Reply, commands)
    assert records in joined(reply.pieces)


def test_a_client_that_leaves_while_records_are_converted_leaves_nothing_behind() -> None:
    play = Play(works=False)
    asking(play, 2, 10)

    assert len(of_type(RunInThread, play.answer({0: Part(records=LARGE_GZIP)}))) == 1

    assert play.relay.leave(play.now_s) == ([], [])
    assert play.relay.deadline_s is None
