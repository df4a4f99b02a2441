"""Sessions of fetchers replayed with other cache sizes, on rows made by hand."""

from proxy.analysis.whatif.replay import BACK_OFF_S, Others, Outcome, Replay


def fetched(
    replay: Replay, fetcher: str, now_s: float, *, session_id: int = 0, size: int = 10, full: bool = False
) -> None:
    replay.apply_fetches("proxy", fetcher, session_id, size, 1, now_s, full=full)


def test_fetcher_that_never_requested_session_is_not_counted() -> None:
    replay = Replay(8, shards=1)
    fetched(replay, "a", 0.0)

    assert replay.outcome == Outcome()


def test_a_fetcher_has_its_session_until_it_is_closed() -> None:
    replay = Replay(1, shards=1)
    fetched(replay, "a", 0.0, session_id=7, full=True)
    fetched(replay, "a", 1.0, session_id=7)
    replay.apply_end("proxy", 7, 2.0)
    fetched(replay, "b", 3.0, session_id=8, full=True)

    outcome = replay.outcome
    assert (outcome.granted, outcome.refused, outcome.evicted) == (2, 0, 0)
    assert (outcome.fetches, outcome.in_session, outcome.named_anew) == (3, 1, 20)
    assert (outcome.peak_sessions, outcome.peak_partitions) == (1, 10)


def test_a_fetch_about_nothing_gives_the_slot_back() -> None:
    replay = Replay(1, shards=1)
    fetched(replay, "a", 0.0, session_id=7, full=True)
    fetched(replay, "a", 1.0, size=0)
    fetched(replay, "b", 3.0, session_id=8, full=True)

    assert (replay.outcome.granted, replay.outcome.fetches) == (2, 2)


def test_refused_fetcher_retries_after_backoff() -> None:
    replay = Replay(1, shards=1)
    fetched(replay, "a", 0.0, session_id=7, full=True)
    for second in range(int(BACK_OFF_S) + 1):
        fetched(replay, "b", second, session_id=8, full=not second)

    outcome = replay.outcome
    assert (outcome.granted, outcome.refused) == (1, 2)
    assert outcome.in_session == 0
    assert outcome.named_anew == 10 + 10 * (BACK_OFF_S + 1)


def test_a_refusal_of_then_is_a_session_where_there_is_room() -> None:
    replay = Replay(2, shards=1)
    fetched(replay, "a", 0.0, full=True)
    fetched(replay, "a", 1.0)

    assert (replay.outcome.granted, replay.outcome.in_session) == (1, 1)


def test_a_fetcher_that_is_slow_to_fetch_loses_its_session_and_notices() -> None:
    replay = Replay(1, shards=1)
    fetched(replay, "a", 0.0, session_id=7, full=True)
    fetched(replay, "b", 121.0, session_id=8, full=True)
    fetched(replay, "a", 122.0, session_id=7)
    fetched(replay, "a", 122.0 + BACK_OFF_S, session_id=7)

    outcome = replay.outcome
    assert (outcome.granted, outcome.evicted, outcome.noticed, outcome.refused) == (2, 1, 1, 1)


def test_followers_take_slots_and_keep_them() -> None:
    replay = Replay(2, shards=1, others=Others(followers=1, clients=1, client_partitions=5))
    for second in range(0, 600, 30):
        fetched(replay, "a", second, session_id=7, size=9, full=not second)

    outcome = replay.outcome
    assert outcome.peak_sessions == 2
    assert (outcome.granted, outcome.evicted) == (
        1,
        1,
    )  # the client's, once it is not new, as it has fewer partitions
    assert outcome.refused > 1


def test_inactive_fetchers_are_dropped() -> None:
    replay = Replay(8, shards=1)
    for hour in range(100):
        fetched(replay, f"fetcher {hour}", hour * 3600.0, session_id=hour + 1, full=True)

    assert len(replay._fetchers) <= 2
    assert len(replay._by_ledger_id) <= 2
    assert replay.outcome.granted == 100
