"""The speed of conversion by the compiled and the interpreted kernel, without broker or socket."""

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Final, TypeVar

from proxy.convert import ConversionCounts, ConversionTarget, Converted, DownConversion, to_batches
from proxy.wire.records import Codec
from tests.bench.frame import Expectation, Figure, Table, measure_all
from tests.convert.kernels import COMPILED, load_interpreted, used
from tests.convert.logs import Record, batch

__all__ = ["run"]

T = TypeVar("T")

_SPEED: Final = Figure("speed", "MB/s")
"""The speed, measured by the size of the source."""
_CPU: Final = Figure("CPU", "s/GB")
_WASTE: Final = Figure("waste", "%")
"""Bytes sent for nothing, or to be fetched again, of the source."""
_BATCH_BYTES: Final = 16 * 1024
_PARTITION_BYTES: Final = 1_000_000
"""The input of one conversion: as much as a client usually requests from one partition."""
_LEAST: Final = {1024: 2600, 100: 1000}
"""MB/s to magic 1, not compressed, compiled; by the size of the records."""


def run(*, quick: bool, show_progress: Callable[[str], None]) -> list[Table]:
    """To magic 1 and 0 of every codec, with records of 1 KiB and 100 B; up again; with chunks of several sizes."""
    kernels = {"interpreted": load_interpreted()} | ({"compiled": COMPILED} if COMPILED else {})
    rounds = 2 if quick else 5
    megabytes = 4 if quick else 16
    tables: list[Table] = []

    def case(name: str, ways: Mapping[str, Callable[[], Mapping[Figure, float]]]) -> dict[Figure, Table]:
        measured = measure_all(name, ways, rounds=rounds, show_progress=show_progress)
        tables.extend(measured.values())
        return measured

    for size in _LEAST:
        for codec in Codec:
            log = _log(size, codec)
            for magic in (1, 0):
                name = f"v2 to v{magic}, {size} B, {codec.name.lower()}"
                count = megabytes if codec == Codec.NONE else 1 if quick else 2
                measured = case(
                    name,
                    {way: _down(log, ConversionTarget(magic), kernel, count) for way, kernel in kernels.items()},
                )
                if (codec, magic) == (Codec.NONE, 1) and COMPILED:
                    found = measured[_SPEED].median("compiled")
                    text = f"{name}: {found:,.0f} MB/s compiled, at least {_LEAST[size]:,}"
                    tables[tables.index(measured[_SPEED])] = measured[_SPEED].expecting(
                        Expectation(text, is_met=found >= _LEAST[size])
                    )
        up = _messages(_log(size, Codec.NONE))
        case(f"v1 to v2, {size} B", {way: _up(up, kernel, megabytes) for way, kernel in kernels.items()})
    fastest = COMPILED or load_interpreted()
    for size in _LEAST:
        log = _log(size, Codec.NONE)
        chunks = {f"{kib} KiB": ConversionTarget(1, chunk_bytes=kib * 1024) for kib in (128, 16, 64, 256, 1024)}
        ways = {name: _down(log, target, fastest, megabytes) for name, target in chunks.items()}
        case(f"chunks, v2 to v1, {size} B", ways)
    return tables


def _texts(size: int) -> Iterator[bytes]:
    """JSON documents that compress to a third or so."""
    chance = random.Random(size)
    words = ["".join(chance.choices("abcdefghijklmnop", k=chance.randint(3, 9))) for _ in range(2000)]
    while True:
        text = json.dumps({"id": chance.randrange(10**9), "text": " ".join(chance.choices(words, k=size // 6))})
        yield text.encode()[:size].ljust(size)


def _log(size: int, codec: Codec) -> memoryview:
    texts = _texts(size)
    log = bytearray()
    each = _BATCH_BYTES // size
    for base in range(0, 10**9, each):
        records = [Record(base + k, 1_700_000_000_000 + base + k, b"key", next(texts)) for k in range(each)]
        log += batch(records, codec=codec)
        if len(log) > _PARTITION_BYTES * 0.98:
            break
    return memoryview(log)


def _messages(log: memoryview) -> memoryview:
    conversion = DownConversion(log, 0, ConversionTarget(1))
    conversion.begin()
    return memoryview(b"".join(bytes(chunk) for chunk in iter(conversion.next_chunk, None)))


def _down(
    log: memoryview, target: ConversionTarget, kernel: ModuleType, times: int
) -> Callable[[], Mapping[Figure, float]]:
    def once() -> ConversionCounts:
        conversion = DownConversion(log, 0, target)
        assert isinstance(conversion.begin(), Converted)
        while conversion.next_chunk() is not None:
            pass
        return conversion.counts

    def all_of_them() -> Mapping[Figure, float]:
        figures, counts = _timed(once, len(log), kernel, times)
        wasted = counts.padding_bytes + counts.unread_bytes
        return figures | {_WASTE: 100 * wasted / len(log)} if wasted else figures

    return all_of_them


def _up(message_set: memoryview, kernel: ModuleType, times: int) -> Callable[[], Mapping[Figure, float]]:
    def all_of_them() -> Mapping[Figure, float]:
        once = partial(to_batches, message_set, max_batch_bytes=2 * _PARTITION_BYTES)
        return _timed(once, len(message_set), kernel, times)[0]

    return all_of_them


def _timed(once: Callable[[], T], size: int, kernel: ModuleType, times: int) -> tuple[dict[Figure, float], T]:
    with used(kernel):
        once()
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        for _ in range(times):
            done = once()
        wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
    return {_SPEED: size * times / wall_s / 1e6, _CPU: cpu_s / (size * times / 1e9)}, done
