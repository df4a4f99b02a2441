"""Bytes read are counted by topic, by rack, and by whether they crossed racks."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.events import RouteKind
from proxy.relay.traffic import OTHER_TOPICS, Traffic, TrafficSource


def test_bytes_are_counted_by_topic_rack_and_whether_they_crossed() -> None:
    traffic = Traffic()
    for topic, rack, crossed, size in (
        ("orders", "a", True, 10),
        ("orders", "a", True, 5),
        ("orders", "b", False, 100),
        ("logs", "c", True, 7),
        ("logs", None, None, 1),
        ("nothing", "a", True, 0),
    ):
        traffic.add_records(topic, rack, crossed, size)

    assert traffic.record_bytes == {
        TrafficSource("orders", "a", True): 15,
        TrafficSource("orders", "b", False): 100,
        TrafficSource("logs", "c", True): 7,
        TrafficSource("logs", None, None): 1,
    }
    assert traffic.as_log_fields() == {
        "record_bytes": 123,
        "own_rack_bytes": 100,
        "crossed_bytes": 22,
        "unknown_rack_bytes": 1,
        "by_rack": "a: 15, b: 100, c: 7, no rack: 1",
        "crossed_by_topic": "orders: 15, logs: 7",
    }


def test_log_fields_list_the_five_topics_with_the_most_cross_rack_bytes() -> None:
    traffic = Traffic()
    for number in range(8):
        traffic.add_records(f"t{number}", "a", True, 10 + number)

    assert traffic.as_log_fields()["crossed_by_topic"] == "t7: 17, t6: 16, t5: 15, t4: 14, t3: 13"


def test_routes_are_counted_by_their_kind() -> None:
    traffic = Traffic()
    assert traffic.closest_share is None
    assert traffic.as_log_fields() == {}
    kinds: tuple[tuple[RouteKind, int], ...] = (("leader", 6), ("preferred", 2), ("preferred", 3), ("rackless", 1))
    for kind, partitions in kinds:
        traffic.add_fetch(kind, partitions)
    assert traffic.closest_share == 5 / 12
    traffic.add_fetch("selected", 4)

    assert traffic.as_log_fields() == {
        "leader_fetches": 1,
        "preferred_fetches": 2,
        "rackless_fetches": 1,
        "selected_fetches": 1,
        "leader_partitions": 6,
        "preferred_partitions": 5,
        "rackless_partitions": 1,
        "selected_partitions": 4,
        "closest_share": "0.562",
    }


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from(["x", None]), st.integers(0, 9)), max_size=40))
def test_a_bounded_number_of_topics_is_counted_apart_and_nothing_is_lost(
    came: list[tuple[str, str | None, int]],
) -> None:
    traffic = Traffic(topics=3)
    for topic, rack, size in came:
        traffic.add_records(topic, rack, None if rack is None else True, size)

    topics = {source.topic for source in traffic.record_bytes}
    assert len(topics - {OTHER_TOPICS}) <= 3
    assert traffic.total() == sum(size for _, _, size in came)
    first = list(dict.fromkeys(topic for topic, _, size in came if size))[:3]
    assert topics - {OTHER_TOPICS} == set(first)
