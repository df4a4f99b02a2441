"""The state that is kept of a running Sidefetch's work."""

from itertools import pairwise

import pytest

from proxy.events import DamageRecord
from proxy.telemetry import state as states
from proxy.telemetry.state import OTHER, ClientKey, FetchShape, ReadingState
from proxy.telemetry.sums import MINUTE_US, MINUTES
from tests.telemetry.records import NOW_US, Link, client, conversion, exchange, fetch, session


def made(rack: str | None = "a") -> ReadingState:
    return ReadingState(rack, NOW_US)


def test_savings_are_client_fetches_and_protocol_bytes_minus_upstream_ones() -> None:
    state = made()
    for _ in range(3):
        state.observe(Link(), exchange(), NOW_US)
    state.observe(Link(), fetch(), NOW_US)

    assert state.total.saved_fetches == 2
    assert state.total.saved_bytes == 3 * (400 + 2000 - 1400) - (100 + 1500 - 1400)
    assert state.clients[ClientKey("reader", "10.0.0.1")].saved_bytes == state.total.saved_bytes


def test_client_fetch_with_only_errors_saves_nothing() -> None:
    state = made()
    state.observe(Link(), exchange(errors=((6, 10),), delivered_bytes=0), NOW_US)
    state.observe(Link(), exchange(errors=((16, 1),), answered=0, delivered_bytes=0), NOW_US)
    assert (state.total.client_fetches, state.total.saved_fetches, state.total.saved_bytes) == (2, 0, 0)
    assert state.clients[ClientKey("reader", "10.0.0.1")].saved_bytes == 0

    state.observe(Link(), exchange(errors=((6, 9),)), NOW_US)
    assert state.total.saved_fetches == 1


def test_connections_of_one_client_are_one_client_until_the_last_has_gone() -> None:
    state = made()
    links = [Link(1, "10.0.0.1:5000"), Link(2, "10.0.0.1:5001"), Link(3, "10.0.0.2:5000")]
    for link in links:
        state.observe(link, exchange(), NOW_US)

    assert [len(each.readers) for each in state.clients.values()] == [2, 1]
    state.remove(links[0])
    assert len(state.clients) == 2
    state.remove(links[1])
    assert list(state.clients) == [ClientKey("reader", "10.0.0.2")]
    state.remove(links[2])
    state.remove(links[2])
    assert not state.clients
    assert not state._keys


def test_a_client_whose_name_becomes_known_keeps_its_sessions() -> None:
    state = made()
    link = Link(client_id=None)
    state.observe(link, session("created"), NOW_US)
    state.observe(link, exchange(), NOW_US)

    assert list(state.clients) == [ClientKey("reader", "10.0.0.1")]
    assert [each.session_id for each in state.sessions()] == [7]


def test_clients_beyond_limit_are_counted_as_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "_MOST_CLIENTS", 2)
    state = made()
    for number in range(5):
        state.observe(Link(number, client_id=f"c{number}"), exchange(client_id=f"c{number}"), NOW_US)
        state.observe(Link(number, client_id=f"c{number}"), exchange(client_id=f"c{number}"), NOW_US)

    assert [key.client_id for key in state.clients] == ["c0", "c1", OTHER]
    assert [each.fetches for each in state.clients.values()] == [2, 2, 6]


def test_records_are_counted_by_the_rack_that_they_came_from() -> None:
    state = made("a")
    for node, record_bytes in [(1, 10), (2, 20), (3, 40)]:
        state.observe(Link(), fetch(node=node, record_bytes=record_bytes), NOW_US)

    assert states.by_rack(state.brokers) == {"a": 10, "b": 20, None: 40}
    assert (state.total.own_rack_bytes, state.total.crossed_bytes, state.total.record_bytes) == (10, 20, 70)


def test_nothing_has_crossed_where_our_rack_is_not_known() -> None:
    state = made(None)
    state.observe(Link(), fetch(node=2), NOW_US)

    assert (state.total.own_rack_bytes, state.total.crossed_bytes) == (0, 0)


def test_a_session_with_a_broker_lives_until_it_ends_or_its_connection_does() -> None:
    state, link = made(), Link()
    state.observe(link, session("created"), NOW_US)
    state.observe(link, session("created", fetcher_id="1-live", session_id=8), NOW_US)
    state.observe(link, fetch(size=25), NOW_US)

    assert sorted(each.partitions for each in state.sessions()) == [10, 25]
    state.observe(link, session("reset", reason="fetch_session_id_not_found"), NOW_US)
    assert [each.session_id for each in state.sessions()] == [8]
    assert state.session_events["upstream", "reset", "fetch_session_id_not_found"] == 1
    assert state.total.resets == 1
    state.remove(link)
    assert not state.sessions()


def test_sessions_of_clients_are_counted_and_are_no_resets() -> None:
    state = made()
    state.observe(Link(), session("created", side="client"), NOW_US)
    state.observe(Link(), session("evicted", side="client"), NOW_US)

    assert not state.sessions()
    assert state.total.resets == 0
    assert state.session_events == {("client", "created", ""): 1, ("client", "evicted", ""): 1}


def test_requests_of_a_connection_are_sums_and_counted_once() -> None:
    state = made()
    state.observe(Link(), client(requests=5), NOW_US)
    state.observe(Link(), client(requests=7), NOW_US)
    state.observe(Link(2, "10.0.0.1:5001"), client(requests=1), NOW_US)

    assert state.requests == {(0, 2, 3): 8, (3, 5, 5): 2}
    assert state.software() == {("librdkafka 0.11.6", False): 2}


def test_names_of_client_software_are_limited_since_the_start() -> None:
    state = made()
    for number in range(300):
        link = Link(number)
        state.observe(link, client(software=f"client {number}"), NOW_US)
        names = set(state.software())
        state.remove(link)
        assert names == {(f"client {number}", False) if number < 200 else ("(other)", True)}


def test_minutes_cover_last_hour_including_idle_minutes() -> None:
    state = made()
    state.observe(Link(), conversion(), NOW_US)
    state.observe(Link(), conversion(), NOW_US + 2 * MINUTE_US)
    hour = list(state.minutes.last(NOW_US + 3 * MINUTE_US))

    assert len(hour) == MINUTES
    assert [each.sums.converted_records for each in hour[-5:]] == [0, 50, 0, 50, 0]
    assert all(later.at_us - sooner.at_us == MINUTE_US for sooner, later in pairwise(hour))
    assert [each.sums.converted_records for each in state.minutes.last(NOW_US + 70 * MINUTE_US)] == [0] * MINUTES
    assert state.total.converted_records == 100


def test_minutes_older_than_one_hour_are_dropped() -> None:
    state = made()
    for minute in range(500):
        state.observe(Link(), fetch(), NOW_US + minute * MINUTE_US)

    assert len(state.minutes._kept) == MINUTES
    assert state.total.broker_fetches == 500


def test_clock_set_back_counts_in_current_minute() -> None:
    state = made()
    state.observe(Link(), fetch(), NOW_US)
    state.observe(Link(), fetch(), NOW_US - 10 * MINUTE_US)

    assert [each.sums.broker_fetches for each in state.minutes.last(NOW_US)][-1] == 2


def test_byte_rate_follows_recent_fetches() -> None:
    state = made()
    for second in range(100):
        state.observe(Link(), fetch(record_bytes=500), NOW_US + second * 1_000_000)
    now_us = NOW_US + 99 * 1_000_000

    assert state.byte_rate.at(now_us) == pytest.approx(500, rel=0.1)
    assert state.byte_rate.at(now_us + 120_000_000) < 1


def test_session_reasons_beyond_limit_are_counted_as_other() -> None:
    state = made()
    for number in range(1000):
        state.observe(Link(), session("refused", reason=f"r{number}"), NOW_US)

    assert len(state.session_events) <= 51
    assert state.session_events["upstream", "refused", OTHER] == 950


def test_fetches_are_counted_by_kind_fetcher_and_route_and_errors_by_code() -> None:
    state = made()
    state.observe(Link(), fetch(route="preferred", size=4), NOW_US)
    state.observe(Link(), exchange(errors=((6, 2), (1, 1))), NOW_US)
    state.observe(Link(), DamageRecord(1, "t", 0, 5, "crc"), NOW_US)

    assert state.fetches == {FetchShape("incremental", "long-poll", "preferred"): 1}
    assert state.brokers[1].partitions == {"preferred": 4}
    assert state.errors == {6: 2, 1: 1}
    assert state.waited_us == {"poll": 900_000, "broker": 100_000}
    assert state.damaged == 1


def test_names_that_clients_give_themselves_are_kept_in_part() -> None:
    state = made()
    for _ in range(2):
        state.observe(Link(client_id="x" * 30_000), exchange(client_id="x" * 30_000), NOW_US)
    state.observe(Link(client_id="x" * 30_000), client("y" * 30_000, client_id="x" * 30_000), NOW_US)

    (key,) = state.clients
    (software, _), *_ = state.software()
    assert (len(key.client_id), len(software)) == (120, 120)
    assert state.clients[key].fetches == 2


def test_saved_bytes_are_delivered_less_fetched_where_20_clients_share_one_fetch() -> None:
    state = made()
    requested, responded, records = 400, 2_000, 1_400
    for number in range(20):
        shared = exchange(
            client_id=f"reader-{number}",
            request_bytes=requested,
            response_bytes=responded,
            source_bytes=records,
            delivered_bytes=records + 7,  # they were converted
            is_shared=True,
        )
        state.observe(Link(number, client_id=f"reader-{number}"), shared, NOW_US)
    cache = Link(99, "", client_id=None, is_shared_cache=True)
    state.observe(cache, fetch(request_bytes=100, response_bytes=1_500, record_bytes=records), NOW_US)

    of_clients = 20 * (requested + responded - (records + 7)) + 20 * records
    assert state.total.saved_bytes == of_clients - (100 + 1_500)
    assert (state.total.shared_fetched_bytes, state.total.shared_delivered_bytes) == (records, 20 * records)
    assert state.total.delivery_ratio == 20
    assert {(each.saved_bytes, each.shared_fetches) for each in state.clients.values()} == {(0, 1)}
    assert next(reversed(list(state.minutes.last(NOW_US)))).sums.saved_bytes == state.total.saved_bytes


def test_records_that_are_not_shared_save_nothing() -> None:
    state = made()
    state.observe(Link(), fetch(), NOW_US)
    state.observe(Link(), exchange(), NOW_US)

    assert state.total.saved_bytes == (400 + 600) - (100 + 100)
    assert state.total.delivery_ratio is None


def test_fetches_and_sessions_of_a_shared_cache_count_once_and_for_no_client() -> None:
    state = made()
    cache = Link(9, "", client_id=None, is_shared_cache=True)
    for number in (1, 2):
        state.observe(Link(number, client_id=f"reader-{number}"), exchange(client_id=f"reader-{number}"), NOW_US)
    for record in (session("created"), fetch(node=2, client_fetches=2, size=12)):
        state.observe(cache, record, NOW_US)

    assert [(key.client_id, each.broker_fetches) for key, each in state.clients.items()] == [
        ("reader-1", 0),
        ("reader-2", 0),
    ]
    assert (state.total.broker_fetches, state.total.record_bytes, state.total.crossed_bytes) == (1, 1400, 1400)
    assert [each.partitions for each in state.sessions()] == [12]
    state.remove(cache)
    assert state.sessions() == []
