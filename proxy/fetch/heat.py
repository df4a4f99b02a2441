"""Which partitions keep bringing records, and whether it pays to read the others apart."""

from typing import Final

from proxy.wire.fetch import PartitionKey

__all__ = ["Heat", "Parks"]

_HOT: Final = 3
"""Exchanges in a row that a partition must have brought something to: one trickling record moves nothing."""
_COOL: Final = 4
"""Exchanges without anything after which it is taken to be idle again."""
_WINDOW_S: Final = 60.0
"""How long parks are looked at, and done without if they do not pay."""


class Heat:
    """Counts in exchanges, so that it is the same for a fast client and a slow one."""

    __slots__ = ("_streaks", "now")

    def __init__(self) -> None:
        self.now = 0
        """The exchange at hand."""
        self._streaks: dict[PartitionKey, tuple[int, int]] = {}
        """(Exchange of the last news, how many in a row until then.)"""

    def brought(self, key: PartitionKey) -> None:
        """It had news in this exchange."""
        last, streak = self._streaks.get(key, (0, 0))
        if last < self.now:
            self._streaks[key] = (self.now, streak + 1 if last == self.now - 1 else 1)

    def failed(self, key: PartitionKey) -> None:
        """It had an error: it must not end the long wait of others again and again."""
        self._streaks[key] = (self.now, _HOT)

    def is_hot(self, key: PartitionKey) -> bool:
        last, streak = self._streaks.get(key, (0, 0))
        return streak >= _HOT and self.now - last < _COOL

    def prune(self) -> None:
        """Forget what has cooled."""
        self._streaks = {key: each for key, each in self._streaks.items() if self.now - each[0] < _COOL}


class Parks:
    """Whether the patient lane waits longer than the client does; else two lanes cost more than one."""

    __slots__ = ("_count", "_parked_s", "_pay_from_s", "_since_s")

    def __init__(self) -> None:
        self._since_s = self._parked_s = self._pay_from_s = 0.0
        self._count = 0

    def ended(self, sent_s: float, now_s: float, client_wait_s: float) -> None:
        """One wait is over, for whatever reason."""
        if not self._count:
            self._since_s = sent_s
        self._count += 1
        self._parked_s += now_s - sent_s
        if now_s - self._since_s >= _WINDOW_S:
            if self._parked_s / self._count < client_wait_s:
                self._pay_from_s = now_s + _WINDOW_S
            self._count, self._parked_s = 0, 0.0

    def pay(self, now_s: float) -> bool:
        return now_s >= self._pay_from_s
