"""Names and values of metrics."""

import re

import attrs

from proxy.telemetry.instruments import INSTRUMENTS, api_name, error_name, is_upgraded
from proxy.telemetry.snapshot import MetricsSnapshot
from proxy.telemetry.state import ReadingState
from tests.telemetry.records import NOW_US, Link, busy, facts_of, fetch


def read(name: str, facts: MetricsSnapshot) -> list[tuple[float, dict[str, str]]]:
    (instrument,) = [each for each in INSTRUMENTS if each.name == name]
    return [(value, dict(attributes)) for value, attributes in instrument.read(facts)]


def test_every_instrument_reads_something_and_has_the_attributes_that_it_declares() -> None:
    facts = facts_of(busy())

    for each in INSTRUMENTS:
        points = list(each.read(facts))
        assert all(type(value) in (int, float) for value, _ in points), each.name
        assert points or each.name == "sidefetch.client.session.events", each.name
        assert all(set(attributes) == set(each.attributes) for _, attributes in points), each.name


def test_names_are_ours_once_and_as_opentelemetry_and_prometheus_have_them() -> None:
    names = [each.name for each in INSTRUMENTS]

    assert len(set(names)) == len(names)
    assert len({each.prometheus for each in INSTRUMENTS}) == len(names)
    for each in INSTRUMENTS:
        assert re.fullmatch(r"sidefetch(\.[a-z_]+)+", each.name)
        assert re.fullmatch(r"By|s|\{[a-z]+\}", each.unit)
        assert each.prometheus.endswith("_total") == (each.kind == "counter")
        assert each.meaning.endswith(".")


def test_fetched_record_bytes_are_reported_by_rack_and_crossing() -> None:
    state = ReadingState("a", NOW_US)
    for node in (1, 2, 3):
        state.observe(Link(), fetch(node=node, record_bytes=node), NOW_US)

    assert read("sidefetch.broker.fetch.records.io", facts_of(state)) == [
        (3, {"rack": "", "crossed": "unknown"}),
        (1, {"rack": "a", "crossed": "false"}),
        (2, {"rack": "b", "crossed": "true"}),
    ]


def test_unknown_values_are_not_reported() -> None:
    facts = attrs.evolve(facts_of(ReadingState(None, NOW_US)), is_reached=None)

    assert read("sidefetch.broker.reachable", facts) == []
    assert read("sidefetch.broker.in_rack", facts) == []


def test_apis_and_errors_have_their_names_and_others_none() -> None:
    assert [api_name(key) for key in (2, 12, 32000, -1)] == ["ListOffsets", "Heartbeat", "(other)", "(other)"]
    assert (error_name(6), error_name(32000)) == ("not_leader_or_follower", "(other)")


def test_fetch_in_a_version_that_brokers_serve_does_not_count_as_upgraded() -> None:
    assert not is_upgraded(1, 4, 17)
    assert is_upgraded(1, 3, 17)
    assert is_upgraded(0, 2, 3)
    assert not is_upgraded(0, 2, 2)


def test_lost_ledger_rows_are_reported() -> None:
    assert read("sidefetch.ledger.lost", facts_of(busy())) == [(7, {})]
