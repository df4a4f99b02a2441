"""Records that the tests know in advance, in every shape that a record can have."""

from collections.abc import Callable

import attrs

__all__ = [
    "FIRST_TIMESTAMP_MS",
    "Filled",
    "Record",
    "by_partition",
    "known_records",
    "offset_runs",
    "sendable_records",
]

FIRST_TIMESTAMP_MS = 1_700_000_000_000


@attrs.frozen
class Record:
    """One record, as produced or as a client has read it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


Filled = Callable[[int], tuple[str, list[Record]]]
"""The name and the records of a topic with the given number of partitions."""


def known_records(count: int, partitions: int, *, first: int = 0) -> list[Record]:
    """Return *count* different records, dealt to *partitions* in turn; offsets begin at ``first // partitions``.

    Among any 40 there are records without a key, with an empty one, with an empty value, a tombstone, one with
    headers (an empty one, one not in UTF-8, one that is null), and one of 3 KiB.
    """
    return [_known(number, partitions) for number in range(first, first + count)]


def sendable_records(count: int, partitions: int) -> list[Record]:
    """Return known records without null headers: kafka-python and KafkaJS read those and refuse to send them."""
    return [
        attrs.evolve(record, headers=tuple(header for header in record.headers if header[1] is not None))
        for record in known_records(count, partitions)
    ]


def _known(number: int, partitions: int) -> Record:
    key: bytes | None = b"key-%d" % number
    value: bytes | None = b"value-%d" % number
    headers: tuple[tuple[str, bytes | None], ...] = ()
    match number % 8:
        case 1:
            key = None
        case 3:
            value = b""
        case 4:
            value = None
        case 5:
            key = b""
        case 6:
            headers = (
                ("trace", b"%d" % number),
                ("empty", b""),
                ("raw", bytes((0, 255, number % 256))),
                ("null", None),
            )
    if number % 40 == 7:
        value = (b"%d;" % number) * (3072 // len(b"%d;" % number))
    return Record(number % partitions, number // partitions, FIRST_TIMESTAMP_MS + number, key, value, headers)


def by_partition(records: list[Record]) -> dict[int, list[Record]]:
    """Group *records*, keeping the order in which they came: equal results mean equal order in each partition."""
    grouped: dict[int, list[Record]] = {}
    for record in records:
        grouped.setdefault(record.partition, []).append(record)
    return grouped


def offset_runs(records: list[Record]) -> dict[int, list[tuple[int, int]]]:
    """Return, by partition, the first and last offset of each run of offsets that follow one another."""
    runs: dict[int, list[tuple[int, int]]] = {}
    for record in records:
        of_partition = runs.setdefault(record.partition, [])
        if of_partition and of_partition[-1][1] + 1 == record.offset:
            of_partition[-1] = (of_partition[-1][0], record.offset)
        else:
            of_partition.append((record.offset, record.offset))
    return runs
