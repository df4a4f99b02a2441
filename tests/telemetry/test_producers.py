"""Producers' spans in the headers of records."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.demo.batches import DemoRecord, encode_batch, split_batches
from proxy.telemetry.producers import Producer, Producers

TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331


def traceparent(trace_id: int = TRACE, span_id: int = SPAN, flags: int = 1, version: str = "00") -> bytes:
    return f"{version}-{trace_id:032x}-{span_id:016x}-{flags:02x}".encode()


def record(value: bytes | None, *before: tuple[str, bytes | None]) -> DemoRecord:
    return DemoRecord(b"v" * 40, b"k", (*before, ("traceparent", value)))


def demo_batch(*records: DemoRecord, base: int = 0, codec: int = 0) -> bytes:
    """Return a batch of *records* at the offset *base*; *codec* is named, but nothing is compressed."""
    (encoded,) = split_batches(encode_batch(records))
    data = bytearray(encoded.with_offset(base, 0).data)
    data[22] |= codec
    return bytes(data)


def found_in(*batches: bytes, offset: int = 0) -> Producers:
    producers = Producers()
    producers.search(memoryview(b"".join(batches)), offset)
    return producers


def test_a_header_names_the_producers_span() -> None:
    it = found_in(demo_batch(DemoRecord(b"plain"), record(traceparent(), ("other", None), ("", b"x")), base=50))

    assert list(it.found.values()) == [Producer(TRACE, SPAN, 1, 51)]
    assert [each.offset for each in it.found.values()] == [51]
    assert (it.messages, it.counts_all, it.is_cut, it.compressed_batches) == (2, True, False, 0)


def test_one_span_of_many_records_is_linked_once() -> None:
    one, other = record(traceparent()), record(traceparent(span_id=5))

    it = found_in(demo_batch(one, one, base=8), demo_batch(other, one, base=10))

    assert [(each.span_id, each.offset) for each in it.found.values()] == [(SPAN, 8), (5, 10)]


def test_invalid_traceparent_is_not_linked() -> None:
    wrong = [
        None,
        b"",
        traceparent()[:-1],
        traceparent() + b"-more",
        traceparent(version="ff"),
        traceparent(trace_id=0),
        traceparent(span_id=0),
        traceparent().upper(),
        traceparent(version="01") + b"-" + b"more" * 64,
    ]

    assert not found_in(demo_batch(*map(record, wrong))).found


def test_later_versions_may_have_more_to_say() -> None:
    assert found_in(demo_batch(record(traceparent(version="01") + b"-more"))).found


def test_records_before_fetch_offset_are_not_searched() -> None:
    before, after = record(traceparent(span_id=1)), record(traceparent(span_id=2))

    it = found_in(demo_batch(before, base=0), demo_batch(before, after, base=1), offset=2)

    assert [each.span_id for each in it.found.values()] == [2]


def test_compressed_batches_are_counted_and_not_searched() -> None:
    it = found_in(demo_batch(record(traceparent()), codec=4))

    assert not it.found
    assert (it.compressed_batches, it.messages) == (1, 1)


def test_how_much_is_searched_is_bounded() -> None:
    many = found_in(*(demo_batch(record(traceparent(span_id=n)), base=n) for n in range(1, 100)))
    plain = found_in(demo_batch(*[DemoRecord(b"v")] * 300), demo_batch(record(traceparent()), base=300))
    batches = found_in(*(demo_batch(DemoRecord(b"v"), base=n, codec=1) for n in range(600)))

    assert (len(many.found), many.is_cut, many.messages, many.counts_all) == (32, True, 99, True)
    assert (len(plain.found), plain.is_cut) == (0, True)
    assert (batches.is_cut, batches.counts_all, batches.compressed_batches) == (True, False, 512)


def test_a_record_with_headers_without_number_is_not_searched_to_its_end() -> None:
    headers = tuple(("h", None) for _ in range(100))

    assert not found_in(demo_batch(record(traceparent(), *headers))).found


@given(st.binary(max_size=60), st.integers(0, 200), st.binary(max_size=4))
def test_garbage_is_harmless(garbage: bytes, at: int, put: bytes) -> None:
    data = bytearray(demo_batch(record(traceparent()), record(traceparent(span_id=9))) + garbage)
    data[at : at + len(put)] = put

    found_in(bytes(data))
