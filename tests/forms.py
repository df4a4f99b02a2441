"""The tests that ``pytest --short`` leaves out, as ``make test`` does.

* ``long``: reads directly from the brokers, which test the test, and tests that take long and resemble others.
* ``each_once``: of a test with parameters, as many combinations as are needed for each value to occur.
* ``in_turn``: of a test that takes long, one combination; of the next such test of the file, the next.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pytest

__all__ = ["covering", "in_short"]


def in_short(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests of *items* that ``--short`` keeps, in their order."""
    kept: list[pytest.Item] = []
    matrices: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("long") is not None:
            continue
        kept.append(item)
        if _thinned(item) is not None:
            matrices.setdefault(item.nodeid.partition("[")[0], []).append(item)
    spare: set[pytest.Item] = set()
    turns: Counter[str] = Counter()
    for name, matrix in matrices.items():
        if _thinned(matrix[0]) == "in_turn":
            file = name.partition("::")[0]
            chosen = {turns[file] % len(matrix)}
            turns[file] += 1
        else:
            chosen = covering([_parameters(item) for item in matrix])
        spare.update(item for index, item in enumerate(matrix) if index not in chosen)
    return [item for item in kept if item not in spare]


def _thinned(item: pytest.Item) -> str | None:
    """The closest mark by which some combinations are left out, of a test that has any."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return None
    return next((mark.name for mark in item.iter_markers() if mark.name in ("each_once", "in_turn")), None)


def covering(combinations: Sequence[Mapping[str, object]]) -> set[int]:
    """Indices of *combinations* in which every value of every parameter occurs; few, not always the fewest.

    Where there is a choice, a value occurs about as often as the others of its parameter.
    """
    missing = {pair for each in combinations for pair in each.items()}
    chosen: set[int] = set()
    occurs: Counter[tuple[str, object]] = Counter()

    def worth(index: int) -> tuple[int, int]:
        pairs = combinations[index].items()
        return len(missing & pairs), -sum(occurs[pair] for pair in pairs)

    while missing:
        best = max(range(len(combinations)), key=worth)
        chosen.add(best)
        occurs.update(combinations[best].items())
        missing -= combinations[best].items()
    return chosen


def _parameters(item: pytest.Item) -> dict[str, object]:
    assert isinstance(item, pytest.Function)
    return {name: repr(value) for name, value in item.callspec.params.items()}
