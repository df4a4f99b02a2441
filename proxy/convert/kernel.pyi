# What Cython's types in kernel.py are to a type checker.
from typing import Final, NamedTuple

is_compiled: Final[bool]

class Done(NamedTuple):
    end: int
    damage: str
    size: int
    messages: int
    headers: int
    first_offset: int
    last_offset: int
    newest_ms: int

def measure_batches(source: memoryview, start: int, end: int, from_offset: int, magic: int) -> Done: ...
def convert_batches(
    source: memoryview, start: int, end: int, from_offset: int, magic: int, out: memoryview
) -> Done: ...
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
