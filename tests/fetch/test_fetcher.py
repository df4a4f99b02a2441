"""The fetches of one fetcher: sessions, the time that a broker may take, and the meaning of its silence."""

from collections.abc import Sequence

import pytest

from proxy.cluster.routing import Source
from proxy.cluster.topology import BrokerId
from proxy.errors import BrokerProtocolError, ErrorCode
from proxy.events import FetchRecord, SessionRecord
from proxy.fetch.commands import CloseSession, EmitRecord, FetcherId, FetcherKind
from proxy.fetch.fetcher import MANY, PARKED_S, Fetcher, FetchResult, FetchWait
from proxy.fetch.shared_log import LogKey, SharedLog
from proxy.session.upstream import AcceptedResponse
from proxy.wire.apis import VersionRange
from proxy.wire.fetch import FETCH, FetchOptions, PartitionKey, PartitionReply, response_layout

SOURCE = Source(BrokerId(1))
VERSION = 12
OPTIONS = FetchOptions(0, 1, 1 << 20)
PARKED = FetchWait(10.0)
SENT_S = 100.0


def fetcher_of(partitions: int, kind: FetcherKind = FetcherKind.LONG_POLL, *, version: int = VERSION) -> Fetcher:
    """Return an open fetcher with the logs of topic ``t``, from offset 0 on."""
    made = Fetcher(FetcherId(SOURCE, kind), "leader", 0.0)
    made.opened({FETCH: VersionRange(0, version)})
    for partition in range(partitions):
        log = SharedLog(LogKey(PartitionKey("t", partition), SOURCE, 5, -1, is_probe=False), 0)
        log.max_bytes = 1000
        made.join(log, 0)
    return made


def respond(
    fetcher: Fetcher,
    replies: Sequence[PartitionReply] = (),
    *,
    session_id: int = 0,
    error: int = 0,
    number: int = 1,
    now_s: float = SENT_S,
) -> FetchResult:
    """Pass the broker's response to the request in flight."""
    layout = response_layout(fetcher.version)
    sent = fetcher._in_flight
    assert sent is not None
    body = [layout.header(sent.sent.correlation_id, 0, error, 1 if replies else 0, session_id)]
    if replies:
        body.append(layout.topic("t", len(replies)))
        for each in replies:
            head, tail = layout.partition(each, len(each.records))
            body += (head, bytes(each.records), tail)
        body.append(layout.topic_end)
    body.append(layout.end(()))
    return fetcher.received(memoryview(b"".join(body)), number, now_s, topic_name=str)


def idle(partitions: int) -> list[PartitionReply]:
    return [PartitionReply(partition, 0, 0, 0, 0) for partition in range(partitions)]


def ask(fetcher: Fetcher, wait: FetchWait = PARKED, *, number: int = 1, now_s: float = SENT_S) -> None:
    fetcher.request("client", OPTIONS, wait, number, now_s)


def with_session(partitions: int) -> Fetcher:
    """Return a long-poll fetcher with session 7, and no request in flight."""
    made = fetcher_of(partitions)
    for session_id in (0, 7):
        ask(made, FetchWait(0.0))
        respond(made, idle(partitions), session_id=session_id)
    assert made.has_session
    return made


# ------------------------------------------------------------------------------------------- sessions


def test_first_request_creates_no_session_and_second_creates_one() -> None:
    fetcher = fetcher_of(2)
    assert not fetcher.creates_session(SENT_S)
    ask(fetcher)
    respond(fetcher, idle(2))

    assert fetcher.creates_session(SENT_S)


@pytest.mark.parametrize(("partitions", "creates"), [(2, False), (MANY, True)])
def test_reader_of_few_partitions_that_is_behind_gets_no_session(partitions: int, creates: bool) -> None:
    fetcher = fetcher_of(partitions)
    ask(fetcher)
    large = PartitionReply(0, 0, 99, 99, 0, records=bytes(900))
    respond(fetcher, [large, *idle(partitions)[1:]])

    assert fetcher.is_behind
    assert fetcher.creates_session(SENT_S) is creates


@pytest.mark.parametrize(
    ("kind", "partitions", "creates"),
    [
        (FetcherKind.LIVE, MANY - 1, False),
        (FetcherKind.LIVE, MANY, True),
        (FetcherKind.CATCH_UP, MANY, False),
    ],
)
def test_live_fetcher_has_a_session_from_100_partitions_on_and_catch_up_never(
    kind: FetcherKind, partitions: int, creates: bool
) -> None:
    fetcher = fetcher_of(partitions, kind)
    ask(fetcher, FetchWait(0.1))
    respond(fetcher, idle(partitions))

    assert fetcher.creates_session(SENT_S) is creates


def test_evicted_session_is_not_created_again_for_10_s() -> None:
    fetcher = with_session(2)
    ask(fetcher)
    respond(fetcher, error=ErrorCode.fetch_session_id_not_found)

    assert not fetcher.creates_session(SENT_S + 9.9)
    assert fetcher.creates_session(SENT_S + 10)


def test_session_survives_connection_loss_without_request_in_flight() -> None:
    fetcher = with_session(2)

    assert fetcher.lost(SENT_S) == []
    fetcher.opened({FETCH: VersionRange(0, VERSION)})

    assert fetcher.has_session


def test_lost_request_is_recorded_with_its_error() -> None:
    fetcher = with_session(2)
    ask(fetcher)

    (emitted,) = fetcher.lost(SENT_S + 3)

    assert isinstance(emitted.record, FetchRecord)
    assert (emitted.record.error, emitted.record.answered_s) == (ErrorCode.network_exception, SENT_S + 3)


def test_close_session_returns_one_request_that_closes_it() -> None:
    fetcher = with_session(2)

    commands = list(fetcher.close_session(SENT_S))

    assert [type(each) for each in commands] == [EmitRecord, CloseSession]
    note = commands[0]
    assert isinstance(note, EmitRecord)
    assert isinstance(note.record, SessionRecord)
    assert (note.record.session_id, note.record.event) == (7, "closed")
    assert list(fetcher.close_session(SENT_S)) == []


def test_log_that_has_left_is_forgotten_in_the_session() -> None:
    fetcher = with_session(2)
    fetcher.leave(fetcher.logs[PartitionKey("t", 1)])
    ask(fetcher)

    outcome = respond(fetcher).outcome

    assert isinstance(outcome, AcceptedResponse)
    assert fetcher._session.size == 1


@pytest.mark.parametrize(("route", "version"), [("leader", 3), ("preferred", 10)])
def test_broker_that_is_too_old_is_refused(route: str, version: int) -> None:
    fetcher = Fetcher(FetcherId(SOURCE, FetcherKind.LONG_POLL), route, 0.0)  # type: ignore[arg-type]

    with pytest.raises(BrokerProtocolError, match=f"up to v{version}"):
        fetcher.opened({FETCH: VersionRange(0, version)})


# ------------------------------------------------------------------------------------------- silence


def sure(
    fetcher: Fetcher,
    after_s: float,
    *,
    number: int = 1,
    is_probe: bool = False,
    more: bool = False,
    is_cut: bool = False,
) -> bool:
    return fetcher.is_sure(number, SENT_S + after_s, is_probe=is_probe, has_records=more, is_cut=is_cut)


def test_silence_counts_after_50_ms_for_a_client_fetch_that_the_request_was_sent_for() -> None:
    fetcher = with_session(2)
    ask(fetcher, number=2)

    assert not sure(fetcher, PARKED_S - 0.001, number=2)
    assert sure(fetcher, PARKED_S, number=2)
    assert not sure(fetcher, 1.0, number=2, is_probe=True)


def test_silence_counts_at_once_for_a_client_fetch_that_began_later() -> None:
    fetcher = with_session(2)
    ask(fetcher, number=2)

    assert sure(fetcher, 0.0, number=3)


def test_silence_counts_after_50_ms_for_records_that_a_limit_has_cut() -> None:
    fetcher = with_session(2)
    ask(fetcher, number=2)
    fetcher.confirmed = 4

    assert sure(fetcher, 0.0, number=4)
    assert not sure(fetcher, PARKED_S - 0.001, number=4, is_cut=True)
    assert sure(fetcher, PARKED_S, number=4, is_cut=True)


def test_silence_does_not_count_once_a_response_has_begun_to_arrive() -> None:
    fetcher = with_session(2)
    ask(fetcher, number=2)
    fetcher.answering(3)

    assert not sure(fetcher, 9.0, number=3)
    assert respond(fetcher, number=5).number == 3


def test_silence_does_not_count_for_a_request_that_does_not_wait() -> None:
    fetcher = with_session(2)
    ask(fetcher, FetchWait(0.0), number=2)

    assert not sure(fetcher, 9.0, number=2)


def test_silence_counts_for_a_request_for_more_bytes_only_beside_records_of_others() -> None:
    fetcher = with_session(2)
    ask(fetcher, FetchWait(10.0, min_bytes=100), number=2)

    assert not sure(fetcher, 1.0, number=2)
    assert sure(fetcher, 1.0, number=2, more=True)


def test_response_to_a_long_poll_confirms_client_fetches_that_began_before_it() -> None:
    fetcher = with_session(2)
    ask(fetcher, number=2)

    assert respond(fetcher, number=9).number == 9


def test_response_without_a_wait_confirms_fetches_that_began_before_its_request() -> None:
    fetcher = with_session(2)
    ask(fetcher, FetchWait(0.0), number=2)

    assert respond(fetcher, number=9).number == 2


def test_redirect_that_ends_a_wait_for_bytes_confirms_nothing() -> None:
    fetcher = fetcher_of(2)
    ask(fetcher, FetchWait(10.0, min_bytes=100), number=2)

    redirect = PartitionReply(0, 0, 0, 0, 0, (), 2)
    assert respond(fetcher, [redirect, PartitionReply(1, 0, 0, 0, 0)], number=2).number == 0


# ------------------------------------------------------------------------------------------- time


@pytest.mark.parametrize(
    ("wait", "late_s"), [(FetchWait(10.0), 12.0), (FetchWait(0.0, timeout_s=5.0), 5.0), (FetchWait(0.0), 2.0)]
)
def test_broker_may_take_the_wait_and_2_s_or_the_timeout(wait: FetchWait, late_s: float) -> None:
    fetcher = with_session(2)
    ask(fetcher, wait)

    assert fetcher.late_s == SENT_S + late_s


@pytest.mark.parametrize(
    ("deadline_s", "min_bytes", "waits_longer_than"), [(5.0, 1, True), (10.0, 1, False), (10.0, 0, False)]
)
def test_request_outwaits_a_client_fetch_that_ends_before_it(
    deadline_s: float, min_bytes: int, waits_longer_than: bool
) -> None:
    fetcher = with_session(2)
    ask(fetcher)

    assert fetcher.waits_longer_than(SENT_S + deadline_s, min_bytes) is waits_longer_than


def test_request_for_more_bytes_outwaits_a_client_fetch_that_wants_fewer() -> None:
    fetcher = with_session(2)
    ask(fetcher, FetchWait(10.0, min_bytes=100))

    assert fetcher.waits_longer_than(SENT_S + 20, 99)
    assert not fetcher.waits_longer_than(SENT_S + 20, 100)
