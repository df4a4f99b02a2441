"""Budgets to test with, and those who take from them."""

import io

import attrs

from proxy.net.io.logs import Log
from proxy.net.io.memory import Account, Budget
from proxy.wire.frames import Buffer

__all__ = ["LIMIT", "MIB", "Budgeted", "Holders", "budgeted", "take"]

MIB = 1024 * 1024
LIMIT = 16 * MIB


@attrs.frozen
class Budgeted:
    """A budget of ``LIMIT``, and its records."""

    budget: Budget
    log: io.StringIO


def budgeted() -> Budgeted:
    stream = io.StringIO()
    return Budgeted(Budget(LIMIT, Log("text", "debug", stream)), stream)


async def take(budget: Budget, size_bytes: int, account: Account | None = None) -> list[memoryview]:
    """A view of a buffer that was admitted; in a list, so that it can be let go of."""
    buffer = Buffer(size_bytes)
    await budget.admit(buffer, size_bytes, account or Account())
    return [memoryview(buffer)]


class Holders:
    """Holders of memory: they drop it at once, or when allowed to."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._views: dict[str, list[memoryview]] = {}
        self.asked: list[str] = []

    async def hold(self, name: str, size_bytes: int, since_s: float, *, at_once: bool = True) -> None:
        self._views[name] = await take(self._budget, size_bytes)
        self._budget.register_holder(name, since_s, lambda: self._asked(name, at_once=at_once))

    def drop(self, name: str) -> None:
        self._views.pop(name, None)
        self._budget.remove_holder(name)

    def _asked(self, name: str, *, at_once: bool) -> None:
        self.asked.append(name)
        if at_once:
            self.drop(name)
