"""The execution of inputs with limits, and the report of violations.

Time has two limits: the CPU time of each input by an alarm, and for one in ``TRACED`` the executed lines of Python,
which are the same on every machine, in proportion to its size. Memory is limited by the process's own peak, and by
an
address space too small for an allocation by an unchecked count.
"""

import hashlib
import mmap
import re
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

import attrs

from proxy.errors import ProxyError
from tests.fuzz.mutation import Mutator

__all__ = ["TRACED", "Find", "Ran", "Target", "lines_of", "run", "try_one"]

TRACED: Final = 64
"""One input in so many has its lines counted."""
_ALARM_S: Final = 5.0
"""The CPU time after which an input is interrupted: a hundred times that of the slowest valid input."""
_LINES: Final = 20_000
_LINES_A_BYTE: Final = 200
_MOST_NEW_BYTES: Final = 192 * 1024**2
_NUMBERS: Final = re.compile(r"-?[0-9a-fA-F]*[0-9][0-9a-fA-F]*")
_SIZE_BYTES: Final = 4


@attrs.frozen
class Target:
    """A parser of foreign input."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    feed: Callable[[bytes], object]
    """Parses one input; raises AssertionError if a postcondition fails. The result distinguishes kinds of
    outcome."""
    documented: tuple[type[ProxyError], ...]
    """The errors that may come of it."""
    weight: float = 1.0
    """Its share of the inputs, next to the others'."""
    lines_a_byte: int = _LINES_A_BYTE


class Find(AssertionError):
    """An input that violates a rule."""

    def __init__(self, target: str, data: bytes, why: str) -> None:
        super().__init__(f"{target}: {why}\ninput of {len(data)} bytes: {data[:400].hex()}")
        self.target = target
        self.data = data
        self.why = why


@attrs.define
class Ran:
    """The results of a target's inputs."""

    target: str
    inputs: int = 0
    refused: int = 0
    """Inputs answered by a documented error."""
    outcomes: int = 0
    """The number of different outcomes; inputs with new ones were mutated further."""
    traced: int = 0
    seconds: float = 0.0
    most_new_kib: int = 0
    """The growth of the process beyond its size after the seeds."""
    slowest_cpu_ms: float = 0.0


class _TooSlow(BaseException):
    """The alarm has rung."""


def _ring(_number: int, _frame: FrameType | None) -> None:
    raise _TooSlow


def try_one(target: Target, data: bytes) -> str:
    """Return the outcome of one input, in words that are equal for similar inputs. Raises: Find."""
    try:
        reported = target.feed(data)
    except target.documented as wrong:
        return f"{type(wrong).__name__}: {_NUMBERS.sub('#', str(wrong))[:120]}"
    except _TooSlow:
        raise Find(target.name, data, f"more than {_ALARM_S:g} s of CPU time") from None
    except (Exception, RecursionError, MemoryError) as error:
        raise Find(target.name, data, f"{type(error).__name__}: {error}") from error
    return str(reported)


def lines_of(target: Target, data: bytes) -> int:
    """Return the lines of Python that one input executes. Raises: Find: more than its size allows."""
    most = _LINES + target.lines_a_byte * len(data)
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count > most:
                raise _TooSlow
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        try_one(target, data)
    except Find as find:
        if find.__cause__ is None and count > most:
            raise Find(target.name, data, f"more than {most} lines for {len(data)} bytes") from None
        raise
    finally:
        sys.settrace(before)
    return count


def run(
    target: Target,
    *,
    seed: int,
    inputs: int | None = None,
    seconds: float | None = None,
    current: Path | None = None,
) -> Ran:
    """Feed the seeds, then *inputs* more, or as many as *seconds* of CPU time allow, whichever comes first.

    Args:   current: a file that holds the input that is being read, for whoever finds this process dead.
    Raises: Find.
    """
    ran = Ran(target.name)
    seeds = list(target.seeds())
    mutator = Mutator(seeds, seed)
    seen: set[bytes] = set()
    started_s = time.process_time()
    with _guarded(), _noting(current) as note:
        for data in seeds:
            note(data)
            _one(target, data, ran, seen, mutator, traced=True)
        peak = _peak_kib()
        while (inputs is None or ran.inputs < inputs) and (
            seconds is None or ran.inputs % 16 or time.process_time() - started_s < seconds
        ):
            data = mutator.next()
            note(data)
            _one(target, data, ran, seen, mutator, traced=ran.inputs % TRACED == 0)
            ran.most_new_kib = _peak_kib() - peak
            if ran.most_new_kib * 1024 > _MOST_NEW_BYTES:
                raise Find(target.name, data, f"took {ran.most_new_kib} KiB")
    ran.seconds = round(time.process_time() - started_s, 3)
    ran.outcomes = len(seen)
    return ran


def _one(target: Target, data: bytes, ran: Ran, seen: set[bytes], mutator: Mutator, *, traced: bool) -> None:
    before_s = time.thread_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, _ALARM_S)
    outcome = try_one(target, data)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    ran.slowest_cpu_ms = max(ran.slowest_cpu_ms, round((time.thread_time() - before_s) * 1000, 1))
    ran.inputs += 1
    if outcome.partition(":")[0] in _DOCUMENTED_NAMES:
        ran.refused += 1
    digest = hashlib.blake2b(outcome.encode(errors="replace"), digest_size=8).digest()
    if digest not in seen and len(seen) < _MOST_OUTCOMES:
        seen.add(digest)
        mutator.keep(data)
    if traced:
        lines_of(target, data)
        ran.traced += 1


_MOST_OUTCOMES: Final = 100_000
_DOCUMENTED_NAMES: Final = frozenset(each.__name__ for each in ProxyError.__subclasses__()) | {
    "ClientProtocolError",
    "BrokerProtocolError",
    "LocalProtocolError",
}


@contextmanager
def _guarded() -> Iterator[None]:
    before = signal.signal(signal.SIGVTALRM, _ring)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def _noting(path: Path | None) -> Iterator[Callable[[bytes], None]]:
    """Keeps the input at hand, outside of the process."""
    if path is None:
        yield lambda _: None
        return
    room = 1 << 20
    with path.open("w+b") as file:
        file.truncate(room)
        with mmap.mmap(file.fileno(), room) as memory:

            def note(data: bytes) -> None:
                memory[:_SIZE_BYTES] = len(data).to_bytes(_SIZE_BYTES)
                memory[_SIZE_BYTES : _SIZE_BYTES + len(data)] = data

            yield note


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
