"""Which tests the short form leaves out, of those that are run whenever ``make test`` is: see ``pytest --long``.

* ``long``: what a client does at the brokers directly shows that a test is right, not that Sidefetch is.
* ``each_once``: of a test of several parameters, as many combinations as it takes for each value to occur.
"""

from collections.abc import Iterable, Mapping, Sequence

import pytest

__all__ = ["covering", "in_short"]


def in_short(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Those of *items* that the short form runs, in their order."""
    kept: list[pytest.Item] = []
    matrices: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("long") is not None:
            continue
        kept.append(item)
        if item.get_closest_marker("each_once") is not None:
            matrices.setdefault(item.nodeid.partition("[")[0], []).append(item)
    spare: set[pytest.Item] = set()
    for matrix in matrices.values():
        chosen = covering([_parameters(item) for item in matrix])
        spare.update(item for index, item in enumerate(matrix) if index not in chosen)
    return [item for item in kept if item not in spare]


def covering(combinations: Sequence[Mapping[str, object]]) -> set[int]:
    """Indices of *combinations* in which every value of every parameter occurs; few, not always the fewest."""
    missing = {pair for each in combinations for pair in each.items()}
    chosen: set[int] = set()
    while missing:
        best = max(range(len(combinations)), key=lambda index: len(missing & combinations[index].items()))
        chosen.add(best)
        missing -= combinations[best].items()
    return chosen


def _parameters(item: pytest.Item) -> dict[str, object]:
    assert isinstance(item, pytest.Function)
    return {name: repr(value) for name, value in item.callspec.params.items()}
