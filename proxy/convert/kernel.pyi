# The signatures of kernel.py for a type checker, without Cython's types.
from enum import IntEnum
from typing import Final, NamedTuple

is_compiled: Final[bool]

class Damage(IntEnum):
    NONE = 0
    NUMBER = 1
    LENGTH = 2
    ORDER = 3
    LEFT = 4
    HEADER = 5
    CHECKSUM = 6
    TIME = 7
    ROOM = 8

class Done(NamedTuple):
    end: int
    damage: Damage
    size: int
    messages: int
    headers: int
    first_offset: int
    last_offset: int
    newest_ms: int

class Raised(NamedTuple):
    end: int
    damage: Damage
    size: int
    records: int
    base_ms: int
    newest_ms: int

class Whole(NamedTuple):
    end: int
    next_offset: int

def measure_entries(
    source: memoryview, start: int, stop: int, from_offset: int, magic: int, takes_producers: bool, checks: bool
) -> Done: ...
def convert_entries(
    source: memoryview,
    start: int,
    stop: int,
    from_offset: int,
    magic: int,
    takes_producers: bool,
    out: memoryview,
) -> Done: ...
def convert_messages(source: memoryview, base_offset: int, out: memoryview) -> Done: ...
def convert_records(
    records: memoryview,
    count: int,
    base_offset: int,
    last_offset: int,
    base_ms: int,
    append_ms: int,
    is_append: bool,
    from_offset: int,
    magic: int,
    is_relative: bool,
    out: memoryview,
) -> Done: ...
def measure_messages(source: memoryview, start: int, end: int, magic: int) -> Raised: ...
def raise_messages(
    source: memoryview, start: int, end: int, magic: int, index: int, base_ms: int, out: memoryview
) -> Raised: ...
def whole_entries(source: memoryview, most: int) -> Whole: ...
