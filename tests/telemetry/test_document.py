"""The contents of the API's document."""

import json

import attrs

from proxy.telemetry.document import document
from proxy.telemetry.state import ReadingState
from tests.telemetry.records import NOW_US, Link, busy, client, exchange, facts_of, fetch, session


def test_client_entry_has_software_versions_and_savings() -> None:
    (reported,) = document(facts_of(busy()))["clients"]

    assert reported["client_id"] == "reader"
    assert (reported["software"], reported["is_guess"]) == ("librdkafka 0.11.6", False)
    assert reported["fetch_versions"] == [4]
    assert reported["upgraded"] == ["Produce v2 to v3"]
    assert (reported["fetches"], reported["broker_fetches"]) == (1, 1)
    assert (reported["client_sessions"], reported["broker_sessions"]) == (0, 1)
    assert reported["saved_bytes"] == 1000 - 200


def test_document_is_json_and_covers_last_hour() -> None:
    reported = document(facts_of(busy()))

    assert json.loads(json.dumps(reported)) == reported
    assert len(reported["minutes"]) == 60
    assert reported["minutes"][-1]["saved_bytes"] == reported["total"]["saved_bytes"] == 800


def test_brokers_without_reads_are_listed() -> None:
    reported = document(facts_of(busy()))["brokers"]

    read = [(each["node"], each["rack"], each["record_bytes"]) for each in reported]
    assert read == [(1, "a", 1400), (2, "b", 0), (3, None, 0)]
    assert [each["sessions"] for each in reported] == [1, 0, 0]


def test_persistent_conditions_are_problems_while_they_last() -> None:
    facts = facts_of(ReadingState("nowhere", NOW_US))

    assert [each["event"] for each in document(attrs.evolve(facts, is_reached=False))["problems"]] == [
        "no-broker-reachable",
        "no-broker-in-rack",
    ]
    assert document(facts_of(ReadingState("a", NOW_US)))["problems"] == []


def test_document_size_is_bounded() -> None:
    state = ReadingState("a", NOW_US)
    for number in range(2000):
        link = Link(number, f"10.0.{number % 250}.1:1", client_id=f"c{number}" * 20)
        for record in (fetch(node=number), session("created"), exchange(client_id=link.client_id), client()):
            state.observe(link, record, NOW_US)

    assert len(json.dumps(document(facts_of(state)))) < 500_000
