"""Cut a failing sequence: drop steps, and parts of steps, while it still fails in the same way."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from tests.differential.raw.run import Outcome
from tests.differential.raw.sequence import Fetch, Pipeline, Step
from tests.differential.raw.sequence import Sequence as Drawn

__all__ = ["shrink"]


def shrink(
    drawn: Drawn, kind: str, run: Callable[[Drawn], Outcome], seconds: float
) -> tuple[Drawn, Outcome | None]:
    """Return the shortest sequence found within *seconds* that has a violation of *kind*, and its outcome."""
    deadline = time.monotonic() + seconds
    best: Outcome | None = None

    def fails(steps: Sequence[Step]) -> bool:
        nonlocal drawn, best
        shorter = attrs.evolve(drawn, steps=tuple(steps))
        outcome = run(shorter)
        if not any(violation.kind == kind for violation in outcome.violations):
            return False
        drawn, best = attrs.evolve(shorter, steps=shorter.steps[: outcome.steps]), outcome
        return True

    size = max(len(drawn.steps) // 2, 1)
    while size and time.monotonic() < deadline:
        at = 0
        while at < len(drawn.steps) and time.monotonic() < deadline:
            if not fails(drawn.steps[:at] + drawn.steps[at + size :]):
                at += size
        size //= 2
    at = 0
    while at < len(drawn.steps) and time.monotonic() < deadline:
        smaller = _smaller(drawn.steps[at])
        if not any(fails((*drawn.steps[:at], each, *drawn.steps[at + 1 :])) for each in smaller):
            at += 1
    return drawn, best


def _smaller(step: Step) -> Iterator[Step]:
    """Yield a step without each of its parts."""
    match step:
        case Fetch():
            for asks in _without_one(step.asks):
                yield attrs.evolve(step, asks=asks)
            for during in _without_one(step.during):
                yield attrs.evolve(step, during=during)
        case Pipeline():
            for requests in _without_one(step.requests):
                yield attrs.evolve(step, requests=requests)


def _without_one(parts: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    for at in range(len(parts)):
        yield parts[:at] + parts[at + 1 :]
