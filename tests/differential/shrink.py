"""The smallest combination that still fails, found by removing one random choice after the other."""

from collections.abc import Callable, Iterator

import attrs

from tests.differential.combinations import Combination, shape_of
from tests.differential.settings import family_of

__all__ = ["shrink"]


def shrink(combination: Combination, fails: Callable[[Combination], bool], *, most: int = 30) -> Combination:
    """Return *combination* with less in it, as long as it *fails*; that is asked at most *most* times."""
    asked = 0
    found = True
    while found:
        found = False
        for smaller in _smaller(combination):
            if asked == most:
                return combination
            asked += 1
            if fails(smaller):
                combination, found = smaller, True
                break
    return combination


def _smaller(combination: Combination) -> Iterator[Combination]:
    """Yield *combination* with one choice less, the largest choices first."""
    if combination.event is not None and not shape_of(combination.shape).name.startswith("event"):
        yield attrs.evolve(combination, event=None)
    if combination.steps:
        yield attrs.evolve(combination, steps=())
    if combination.start:
        yield attrs.evolve(combination, start={})
    if combination.options:
        yield attrs.evolve(combination, options=())
    if combination.isolation != "read_uncommitted":
        yield attrs.evolve(combination, isolation="read_uncommitted")
    if combination.rack is not None:
        yield attrs.evolve(combination, rack=None)
    if combination.consumers > 1:
        yield attrs.evolve(combination, consumers=1)
    always = family_of(combination.client).always
    for name in combination.settings:
        if name not in always:
            kept = {key: value for key, value in combination.settings.items() if key != name}
            yield attrs.evolve(combination, settings=kept)
    if len(combination.steps) > 1:
        for index in range(len(combination.steps)):
            yield attrs.evolve(combination, steps=(*combination.steps[:index], *combination.steps[index + 1 :]))
    if combination.event is None and len(combination.partitions) > 1:
        for each in combination.partitions:
            yield _without_partition(combination, each)


def _without_partition(combination: Combination, partition: int) -> Combination:
    left = tuple(each for each in combination.partitions if each != partition)
    return attrs.evolve(
        combination,
        partitions=left,
        start={each: at for each, at in combination.start.items() if each in left},
        steps=tuple(
            attrs.evolve(step, partitions=tuple(each for each in step.partitions if each in left))
            for step in combination.steps
            if step.partition in left and (not step.partitions or {*step.partitions} & {*left})
        ),
    )
