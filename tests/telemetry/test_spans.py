"""Spans from records made by hand."""

import attrs
import pytest

from proxy.events import Record, SourceShare
from proxy.telemetry import attributes as semconv
from proxy.telemetry.attributes import Type, Value
from proxy.telemetry.producers import Producers
from proxy.telemetry.spans import PendingSpans, Span, SpanSubject
from tests.telemetry.conversation import ABOUT, TOPOLOGY, conversion, exchange, fetch, reset


def gathered(*records: tuple[Record, float]) -> PendingSpans:
    it = PendingSpans()
    for record, at_s in records:
        it.add(record, at_s)
    return it


def span_of(*records: tuple[Record, float], about: SpanSubject = ABOUT) -> Span:
    *below, (last, _) = records
    return gathered(*below).make_span(last, about)  # type: ignore[arg-type]


def has_type(value: Value, of: Type) -> bool:
    if of in ("string[]", "int[]"):
        each = str if of == "string[]" else int
        return isinstance(value, tuple) and all(type(one) is each for one in value)
    return type(value) is {"string": str, "int": int, "boolean": bool}[of]


def all_spans(span: Span) -> list[Span]:
    return [span, *(each for below in span.children for each in all_spans(below))]


def test_an_exchange_is_a_span_of_kafkas_poll() -> None:
    span = span_of((exchange(100.0, 100.5), 100.5))

    assert span.name == "poll t"
    assert (span.start_s, span.end_s, span.type.kind) == (100.0, 100.5, "client")
    assert {each.name: value for each, value in span.attributes.items() if "sidefetch" not in each.name} == {
        "messaging.system": "kafka",
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.client.id": "app",
        "messaging.kafka.cluster.id": "cluster",
        "messaging.destination.name": "t",
        "server.address": "kafka-1",
        "server.port": 9092,
        "client.address": "127.0.0.1",
        "client.port": 40000,
    }


def test_upstream_fetches_before_and_during_client_fetch_are_child_spans() -> None:
    span = span_of(
        (fetch(90.0, 99.0), 99.0),
        (fetch(100.1, 100.4, node=2, route="selected", fetcher="live", error=9), 100.4),
        (exchange(100.0, 100.4), 100.4),
    )

    first, second = span.children
    assert (first.start_s, first.end_s, first.attributes[semconv.AHEAD]) == (90.0, 99.0, True)
    assert (second.start_s, second.end_s, second.attributes[semconv.AHEAD]) == (100.1, 100.4, False)
    assert second.attributes[semconv.ROUTE] == "selected"
    assert second.attributes[semconv.RACK] == "b"
    assert second.attributes[semconv.SERVER_ADDRESS] == "kafka-2"
    assert second.error == second.attributes[semconv.ERROR_TYPE] == "REPLICA_NOT_AVAILABLE"
    assert span.attributes[semconv.READS] == 2
    assert span.attributes[semconv.SESSION_HITS] == 1
    assert span.attributes[semconv.WAITED_NODE] == 2


def test_upstream_fetch_completed_during_response_write_belongs_to_next_span() -> None:
    it = gathered((fetch(100.0, 100.2), 100.2), (fetch(100.2, 101.5), 101.5))
    written = exchange(100.0, 102.0, waited_us=(("broker", 200_000), ("convert", 300_000), ("write", 1_500_000)))

    first = it.make_span(written, ABOUT)
    second = it.make_span(exchange(102.1, 102.2), ABOUT)

    assert [each.end_s for each in first.children] == [100.2]
    assert [each.end_s for each in second.children] == [101.5]
    assert not it


def test_conversion_during_response_write_belongs_to_that_response() -> None:
    it = gathered((conversion(), 101.9))
    written = exchange(100.0, 102.0, waited_us=(("write", 2_000_000),), converted=conversion())

    span = it.make_span(written, ABOUT)

    (below,) = span.children
    assert (below.name, below.end_s) == ("convert", 101.9)
    assert below.start_s == pytest.approx(101.898)
    assert below.attributes[semconv.CONVERTED] == span.attributes[semconv.CONVERTED] == 10


def test_reset_span_has_reason_and_session_age() -> None:
    span = span_of((reset(), 99.5), (reset(event="created", reason=""), 99.6), (exchange(100.0, 101.0), 101.0))

    (below,) = span.children
    assert (below.name, below.start_s, below.end_s) == ("reset", 99.0, 99.5)
    assert below.error == below.attributes[semconv.SESSION_REASON] == "evicted"
    assert below.attributes[semconv.SESSION_AGE] == 59_500_000
    assert span.attributes[semconv.SESSION_RESETS] == 1


def test_source_bytes_are_reported_by_broker_and_rack() -> None:
    sources = (
        SourceShare("t", 1, 1, 2, 100, 10),
        SourceShare("u", 2, 1, 3, 500, 10),
        SourceShare("u", 2, 2, 4, 50, 10),
        SourceShare("", 3, 3, 1, 7, 10),
    )

    span = span_of((exchange(100.0, 101.0, sources=sources), 101.0))

    assert span.name == "poll"
    assert span.attributes[semconv.SOURCE_NODES] == (2, 1, 3)
    assert span.attributes[semconv.SOURCE_RACKS] == ("b", "a", "")
    assert span.attributes[semconv.SOURCE_SIZES] == (550, 100, 7)
    assert span.attributes[semconv.SOURCE_WANTED] == (7, 2, 1)
    assert span.attributes[semconv.SOURCE_FOLLOWED] == (3, 0, 0)
    assert span.attributes[semconv.OTHER_RACK_BYTES] == 550


def test_no_bytes_are_from_another_rack_where_our_own_is_not_known() -> None:
    span = span_of((exchange(100.0, 101.0), 101.0), about=attrs.evolve(ABOUT, rack=""))

    assert semconv.OTHER_RACK_BYTES not in span.attributes
    assert semconv.OWN_RACK not in span.attributes


def test_waits_and_errors_are_reported_by_name() -> None:
    waited = (("poll", 1), ("broker", 2), ("budget", 3), ("convert", 4), ("throttle", 5), ("write", 6))

    span = span_of((exchange(100.0, 101.0, waited_us=waited, errors=((1, 2), (1234, 1))), 101.0))

    waits = {each.name: value for each, value in span.attributes.items() if ".waited." in each.name}
    assert waits == {f"sidefetch.waited.{cause}": us for cause, us in waited}
    assert span.error == span.attributes[semconv.ERROR_TYPE] == "OFFSET_OUT_OF_RANGE"
    assert span.attributes[semconv.ERRORS] == ("OFFSET_OUT_OF_RANGE", "1234")
    assert span.attributes[semconv.ERROR_COUNTS] == (2, 1)


def test_child_spans_are_bounded_and_omitted_ones_are_counted() -> None:
    it = gathered(*((fetch(at, at + 0.5), at + 0.5) for at in range(200)))

    span = it.make_span(exchange(200.0, 201.0), ABOUT)

    assert len(span.children) == 128
    assert span.children[-1].end_s == 199.5
    assert span.attributes[semconv.LEFT_OUT] == 72


def test_drop_discards_upstream_fetches_of_unsampled_client_fetch() -> None:
    it = gathered((fetch(99.0, 100.0), 100.0), (fetch(100.0, 105.0), 105.0))

    it.drop(exchange(99.0, 100.0))

    assert [each.end_s for each in it.make_span(exchange(106.0, 107.0), ABOUT).children] == [105.0]


def test_upstream_fetches_without_client_fetch_form_unclaimed_span() -> None:
    it = gathered((fetch(99.0, 100.0), 100.0), (reset(), 100.1))

    span = it.make_unclaimed_span(ABOUT, 101.0)

    assert (span.name, span.start_s, span.end_s) == ("unclaimed", 99.0, 101.0)
    assert [each.name for each in span.children] == ["fetch t", "reset"]
    assert not it


def test_every_attribute_is_declared_for_its_span_and_has_its_type() -> None:
    producers = Producers()
    it = gathered((fetch(99.0, 100.0, throttle_ms=5, error=70), 100.0), (reset(), 100.0), (conversion(), 100.0))
    client_fetch = exchange(99.0, 101.0, errors=((1, 2),), converted=conversion())
    spans = all_spans(it.make_span(client_fetch, ABOUT, producers))
    it.add(fetch(1.0, 2.0), 2.0)
    spans += all_spans(it.make_unclaimed_span(ABOUT, 3.0))

    for span in spans:
        for attribute, value in span.attributes.items():
            assert span.type in attribute.spans, (span.name, attribute.name)
            assert has_type(value, attribute.type), (attribute.name, value)


def test_every_declared_attribute_is_set_on_its_spans() -> None:
    it = gathered((fetch(99.0, 100.0, error=70), 100.0), (reset(), 100.0), (conversion(), 100.0))
    waited = tuple((cause, 1) for cause in ("poll", "broker", "budget", "convert", "throttle", "write"))
    client_fetch = exchange(99.0, 101.0, errors=((1, 2),), converted=conversion(), waited_us=waited)

    spans = all_spans(it.make_span(client_fetch, ABOUT, Producers()))

    seen = {(attribute.name, span.type.name) for span in spans for attribute in span.attributes}
    declared = {
        (each.name, span.name)
        for each in semconv.ATTRIBUTES
        for span in each.spans
        if span is not semconv.UNCLAIMED
    }
    assert seen == declared


def test_broker_missing_from_topology_is_reported_by_id() -> None:
    about = attrs.evolve(ABOUT, topology=attrs.evolve(TOPOLOGY, brokers={}), peer="[::1]:5")

    span = span_of((exchange(100.0, 101.0), 101.0), about=about)

    assert span.attributes[semconv.NODE] == 1
    assert semconv.SERVER_ADDRESS not in span.attributes
    assert (span.attributes[semconv.CLIENT_ADDRESS], span.attributes[semconv.CLIENT_PORT]) == ("::1", 5)
