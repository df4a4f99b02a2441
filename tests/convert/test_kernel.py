"""The kernel, compiled and interpreted: the same of every input, and nothing beyond any bound."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.convert.kernel import Whole, whole_entries
from proxy.wire.records import Codec, entries
from tests.convert.kernels import COMPILED, SOURCE, load_interpreted
from tests.convert.logs import Record, batch, decompressed, message, messages_of, records_of
from tests.convert.strategies import Log, changed, logs, message_sets
from tests.strategies import examples

Call = Callable[[ModuleType], tuple[Any, ...]]
"""A call that returns the result and the output of a kernel; damage by its number, since each kernel has its
own."""


def numbers(done: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(int(each) for each in done)


def calls(data: bytes, offset: int, magic: int, room: int, claim: int) -> list[Call]:
    """Everything that the kernel can do with *data*, truthful or not."""
    view = memoryview(data)

    def converts(kernel: ModuleType) -> tuple[Any, ...]:
        out = bytearray(room)
        done = kernel.convert_entries(view, 0, len(view), offset, magic, bool(claim & 1), memoryview(out))
        return numbers(done), bytes(out[: done.size])

    def measures(kernel: ModuleType) -> tuple[Any, ...]:
        return numbers(kernel.measure_entries(view, 0, len(view), offset, magic, bool(claim & 1), bool(claim & 2)))

    def lowers(kernel: ModuleType) -> tuple[Any, ...]:
        out = bytearray(room)
        done = kernel.convert_messages(view, offset, memoryview(out))
        return numbers(done), bytes(out[: done.size])

    def unpacks(kernel: ModuleType) -> tuple[Any, ...]:
        out = bytearray(room)
        shape = (claim, offset, offset + claim, claim, offset, bool(claim & 1), offset, magic, bool(claim & 2))
        done = kernel.convert_records(view, *shape, memoryview(out))
        return numbers(done), bytes(out[: done.size])

    def raises(kernel: ModuleType) -> tuple[Any, ...]:
        out = bytearray(room)
        done = kernel.raise_messages(view, 0, len(view), magic, claim, offset, memoryview(out))
        return numbers(done), bytes(out[: done.size])

    def checks(kernel: ModuleType) -> tuple[Any, ...]:
        return numbers(kernel.measure_messages(view, 0, len(view), magic))

    def fits(kernel: ModuleType) -> tuple[Any, ...]:
        return numbers(kernel.whole_entries(view, room))

    return [converts, measures, lowers, unpacks, raises, checks, fits]


@st.composite
def inputs(draw: st.DrawFn) -> bytes:
    """Logs, sets, records and noise, damaged or not."""
    log: Log = draw(logs(most=3))
    part = draw(st.sampled_from(log.parts))
    plain = decompressed(part.codec, part.data[61:], 2) if part.magic == 2 and part.records else b""
    data = draw(st.sampled_from([bytes(log.data), part.data, plain, draw(message_sets())[0]]))
    return draw(st.one_of(st.just(data), changed(data), changed(data), st.binary(max_size=120)))


@pytest.fixture(scope="module")
def interpreted() -> ModuleType:
    return load_interpreted()


@examples(400)
@given(
    data=inputs(),
    offset=st.one_of(st.integers(0, 10), st.integers(0, 2**62)),
    magic=st.sampled_from([0, 1]),
    room=st.sampled_from([0, 30, 100, 100_000]),
    claim=st.one_of(st.integers(0, 8), st.integers(0, 2**31 - 1)),
)
def test_both_kernels_agree_on_every_input(
    kernel: ModuleType, interpreted: ModuleType, data: bytes, offset: int, magic: int, room: int, claim: int
) -> None:
    for call in calls(data, offset, magic, room, claim):
        assert call(kernel) == call(interpreted), call.__name__


def test_it_is_the_same_where_cython_is_installed_but_no_compiler(interpreted: ModuleType) -> None:
    with_cython = load_interpreted(with_cython=True)
    log = batch([Record(0, 5, b"k", b"v"), Record(9, -1, None, None)]) + batch([Record(10)])

    for call in calls(log, 0, 1, 1000, 2) + calls(message(Record(0, 5), 1), 0, 1, 1000, 0):
        assert call(with_cython) == call(interpreted)


def test_compiled_kernel_is_not_older_than_its_source(kernel: ModuleType) -> None:
    if kernel is COMPILED:
        compiled = Path(str(kernel.__file__))
        assert compiled.suffix != ".py"
        assert compiled.stat().st_mtime >= SOURCE.stat().st_mtime, "make install compiles what has changed"


@examples(200)
@given(inputs(), st.binary(min_size=1, max_size=50), st.sampled_from([0, 1]))
def test_bytes_after_the_end_do_not_change_the_measurement(
    kernel: ModuleType, data: bytes, behind: bytes, magic: int
) -> None:
    view = memoryview(data + behind)

    alone = kernel.measure_entries(memoryview(data), 0, len(data), 0, magic, True, True)
    followed = kernel.measure_entries(view[: len(data)], 0, len(data), 0, magic, True, True)

    assert alone == followed


@examples(200)
@given(inputs(), st.integers(0, 300), st.sampled_from([0, 1]))
def test_nothing_is_written_beyond_the_room(kernel: ModuleType, data: bytes, room: int, magic: int) -> None:
    out = bytearray(b"\xa5" * (room + 200))

    view, to = memoryview(data), memoryview(out)[:room]

    kernel.convert_entries(view, 0, len(data), 0, magic, True, to)
    kernel.convert_messages(view, 0, to)
    kernel.convert_records(view, 5, 0, 9, 0, 0, False, 0, magic, False, to)
    kernel.raise_messages(view, 0, len(data), magic, 0, 0, to)

    assert out[room:] == b"\xa5" * 200


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (3, 2), (0, 11), (11, 11)])
def test_bounds_that_are_none_are_a_bug_of_the_caller(kernel: ModuleType, start: int, end: int) -> None:
    with pytest.raises(ValueError, match="of 10 bytes"):
        kernel.measure_entries(memoryview(bytes(10)), start, end, 0, 1, True, True)
    with pytest.raises(ValueError, match="of 10 bytes"):
        kernel.measure_messages(memoryview(bytes(10)), start, end, 1)


@examples(100)
@given(logs(old=False), st.sampled_from([0, 1]))
def test_measurement_equals_the_result_of_the_conversion(kernel: ModuleType, log: Log, magic: int) -> None:
    data = memoryview(b"".join(part.data for part in log.parts if not part.codec and part.records))
    out = memoryview(bytearray(2 * len(data) + 1000))

    measured = kernel.measure_entries(data, 0, len(data), 0, magic, True, True)

    assert measured == kernel.convert_entries(data, 0, len(data), 0, magic, True, out)
    assert len(messages_of(bytes(out[: measured.size]))) == measured.messages


@pytest.mark.parametrize("size", [*range(130), 1000, 65_536 + 7])
def test_a_checksum_is_right_at_every_length(kernel: ModuleType, size: int) -> None:
    log = batch([Record(0, 1, None, os.urandom(size))])
    out = memoryview(bytearray(size + 100))

    done = kernel.convert_entries(memoryview(log), 0, len(log), 0, 0, True, out)

    assert len(messages_of(bytes(out[: done.size]))) == 1  # asserts the checksum


def test_damage_stops_a_loop_before_the_entry_that_has_it(kernel: ModuleType) -> None:
    good, bad = batch([Record(0), Record(1)]), batch([Record(2)] * 3, last_offset=3, records_bytes=GOOD * 2)
    log = memoryview(good + bad + good)
    out = memoryview(bytearray(1000))

    done = kernel.convert_entries(log, 0, len(log), 0, 1, True, out)

    assert (done.end, done.messages, done.last_offset) == (len(good), 2, 1)
    assert done.damage is kernel.Damage.NUMBER
    assert len(messages_of(bytes(out[: done.size]))) == 2


def _records_batch(data: bytes, count: int) -> memoryview:
    return memoryview(batch([Record(0)] * count, base_offset=0, last_offset=5, records_bytes=data))


GOOD = b"\x0c\0\0\0\1\1\0"


@pytest.mark.parametrize(
    ("records", "count", "damage"),
    [
        (GOOD, 1, "NONE"),
        (GOOD, 0, "LEFT"),
        (GOOD + b"\0", 1, "LEFT"),
        (GOOD, 2, "NUMBER"),
        (b"\x0e" + GOOD[1:], 1, "LENGTH"),  # the record goes beyond the batch
        (b"\x0b" + GOOD[1:], 1, "LENGTH"),  # or has less than nothing
        (b"\x0c\0\0\x0c\1\1\0", 1, "ORDER"),  # 6 above the base offset, of 5
        (b"\x0c\0\0\1\1\1\0", 1, "ORDER"),
        (b"\x0c\0\0\2\1\1\0" + GOOD, 2, "ORDER"),
        (b"\x0c\0\0\0\x10\1\0", 1, "LENGTH"),  # the key goes beyond the record
        (b"\x0c\0\0\0\1\x10\0", 1, "LENGTH"),
        (b"\x0c\0\0\0\1\1\2", 1, "LENGTH"),  # a header where nothing is left
        (b"\x0c\0\0\0\1\1\1", 1, "LENGTH"),  # -1 headers
        (b"\x0e\0\0\0\1\1\0\0", 1, "LENGTH"),  # a byte behind no headers
        (b"\x80\x80\x80\x80\x80\x01" + GOOD[1:], 1, "NUMBER"),
        (b"\x8c\x80\x80\x80\x10" + GOOD[1:], 1, "NUMBER"),  # 33 bits
        (b"\x8c\x80\x80\x80\x00" + GOOD[1:], 1, "NONE"),  # longer than necessary, but the right value
    ],
)
def test_each_kind_of_damage_has_a_name(kernel: ModuleType, records: bytes, count: int, damage: str) -> None:
    log = _records_batch(records, count)

    assert kernel.measure_entries(log, 0, len(log), 0, 1, True, True).damage.name == damage


@pytest.mark.parametrize("size", [48, -1, 2**31 - 1])
def test_a_batchs_size_is_believed_only_where_it_can_be(kernel: ModuleType, size: int) -> None:
    log = bytearray(batch([Record(0)]))
    log[8:12] = size.to_bytes(4, signed=True)

    assert kernel.measure_entries(memoryview(log), 0, len(log), 0, 1, True, True).damage is kernel.Damage.HEADER


@examples(100)
@given(message_sets())
def test_messages_become_records_and_stop_at_wrappers(
    kernel: ModuleType, given_set: tuple[bytes, tuple[Record, ...], int, int]
) -> None:
    data, _, magic, _ = given_set
    out = memoryview(bytearray(2 * len(data) + 100))

    raised = kernel.raise_messages(memoryview(data), 0, len(data), magic, 0, -1, out)

    assert raised == kernel.measure_messages(memoryview(data), 0, len(data), magic)
    assert not raised.damage
    before = messages_of(data[: raised.end])
    assert all(each.codec == Codec.NONE for each in before)
    assert len(before) == raised.records
    if raised.end < len(data):
        assert messages_of(data[raised.end :])[0].codec != Codec.NONE


def test_no_kernel_reads_beyond_a_page_that_ends_where_the_input_does(kernel: ModuleType) -> None:
    if kernel is not COMPILED:
        return  # Python looks at every access itself
    command = [sys.executable, "-m", "tests.convert.guarded", "2000"]

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert (done.returncode, done.stdout.strip()) == (0, "2000 inputs"), done.stderr[-2000:]


def test_records_survive_both_ways(kernel: ModuleType) -> None:
    records = [Record(k, 1000 - k, b"k" * k, None if k % 3 else b"v" * (k * 40)) for k in range(200)]
    log = memoryview(batch(records))
    down, back = memoryview(bytearray(1_000_000)), memoryview(bytearray(1_000_000))

    done = kernel.convert_entries(log, 0, len(log), 0, 1, True, down)
    raised = kernel.raise_messages(down, 0, done.size, 1, 0, -1, back)

    again = batch([records[0], records[-1]] * 100, records_bytes=bytes(back[: raised.size]))
    assert bytes(log[61:]) == bytes(back[: raised.size])
    assert (raised.records, raised.base_ms, raised.newest_ms) == (200, 1000, 1000)
    assert records_of(again) == records


@examples(100)
@given(logs(), st.integers(0, 4000), st.integers(0, 3))
def test_the_entries_that_fit_are_those_that_a_walk_finds(log: Log, most: int, cut: int) -> None:
    data = memoryview(log.data)[: max(len(log.data) - cut, 0)]
    walked = list(entries(data))
    fitting = [each for index, each in enumerate(walked) if not index or each.end <= most]

    found = whole_entries(data, most)

    assert found == (Whole(fitting[-1].end, fitting[-1].last_offset + 1) if fitting else Whole(0, -1))
