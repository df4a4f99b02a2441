"""Random sequences of requests, by seed.

A step says where to read relative to the log that the runner finds, so that any part of a sequence can be run: this
is how a failing one is shortened.
"""

import random
from typing import Final, Literal

import attrs

__all__ = [
    "Ask",
    "DeleteRecords",
    "Fetch",
    "MoveLeader",
    "Pause",
    "Piped",
    "Pipeline",
    "Produce",
    "Recreate",
    "Sequence",
    "Step",
    "draw",
]

STATIC: Final = {"small": 4, "large": 4, "transactions": 2, "cut": 2}
"""Topics that are there for a whole run, with their numbers of partitions."""
LIVE: Final = "live"
"""The topic that a sequence has for itself."""

Place = Literal["next", "again", "start", "end", "fraction", "back", "below", "beyond"]
Epoch = Literal["none", "right", "old", "new"]
Oddity = Literal[
    "none", "empty topic", "nothing", "unknown topic", "unknown partition", "twice", "twice apart", "old id"
]
SessionUse = Literal["none", "new", "go on", "close", "wrong epoch", "unknown id"]


@attrs.frozen
class Ask:
    """A partition of a fetch."""

    topic: str
    partition: int
    place: Place = "next"
    amount: float = 0.0
    """The fraction, or how many offsets back, below or beyond."""
    max_bytes: int = 1 << 20
    leader_epoch: Epoch = "none"
    last_epoch: Epoch = "none"


@attrs.frozen
class Produce:
    """Append a batch to the sequence's topic and wait for the acknowledgement."""

    partition: int
    count: int
    size: int
    """The size of each value."""
    codec: int = 0
    through: bool = False
    """Whether another connection to Sidefetch is used instead of a direct one."""
    magic: int = 2


@attrs.frozen
class Fetch:
    """One fetch, from which a partition is left out as long as the reader still holds records of it."""

    version: int
    asks: tuple[Ask, ...]
    isolation: int = 0
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = 1 << 25
    replica_id: int = -1
    oddity: Oddity = "none"
    session: SessionUse = "none"
    during: tuple[Produce, ...] = ()
    """Done between the request and its response."""


@attrs.frozen
class Piped:
    """A request of a pipeline."""

    api: Literal["produce", "list offsets", "commit", "committed", "metadata", "coordinator", "versions", "fetch"]
    version: float
    """0 for the oldest that there is, 1 for the newest."""
    partition: int = 0
    count: int = 1
    size: int = 10
    codec: int = 0
    latest: bool = True
    max_wait_ms: int = 0


@attrs.frozen
class Pipeline:
    """Requests that are sent without waiting for responses."""

    requests: tuple[Piped, ...]


@attrs.frozen
class DeleteRecords:
    """A step that deletes the first records of a partition, as a fraction of its log."""

    partition: int
    fraction: float


@attrs.frozen
class Recreate:
    """Delete the sequence's topic and make another one of the same name, with some records."""

    count: int
    """The number of records for each partition."""


@attrs.frozen
class MoveLeader:
    """Let another broker lead a partition of the sequence's topic for the time of one fetch."""

    partition: int
    meanwhile: Fetch


@attrs.frozen
class Pause:
    """Do nothing."""

    seconds: float


Step = Fetch | Produce | Pipeline | DeleteRecords | Recreate | MoveLeader | Pause


@attrs.frozen
class Sequence:
    """The steps on one connection."""

    seed: int
    partitions: int
    """The number of partitions of the sequence's topic."""
    hold: int
    """For how many fetches a partition is left out that has returned records; 0 for never."""
    steps: tuple[Step, ...]


_ZSTD_VERSION: Final = 10
"""Fetch version from which on clients read zstd. Sidefetch converts it for versions 4 to 9; brokers do not."""
_WAITS: Final = (0, 0, 0, 1, 5, 5, 20, 100, 100, 500)
_LIMITS: Final = (1, 10, 500, 4_000, 50_000, 300_000, 1 << 20, 1 << 25, (1 << 31) - 1)


class _Dice(random.Random):
    def chance(self, probability: float) -> bool:
        return self.random() < probability


def draw(seed: int, *, newest_version: int = 17, oldest_version: int = 0) -> Sequence:
    """Return the sequence of *seed*: the same for the same arguments."""
    return _Drawer(_Dice(seed), oldest_version, newest_version).sequence(seed)


class _Drawer:
    def __init__(self, dice: _Dice, oldest: int, newest: int) -> None:
        self._dice = dice
        self._oldest, self._newest = oldest, newest
        self._partitions = dice.choice((1, 2, 3, 3))
        self._hold = dice.choice((0, 0, 0, 1, 2, 4))
        self._version = dice.randint(oldest, newest)
        self._changes_version = dice.chance(0.15)
        self._isolation = dice.choice((0, 0, 1))
        self._changes_isolation = dice.chance(0.15)
        self._uses_sessions = dice.chance(0.4)
        self._is_odd = dice.choice((0.0, 0.0, 0.1, 0.3))
        self._seeks = dice.choice((0.0, 0.05, 0.3))
        self._writes = dice.choice((0.0, 0.2, 0.5))
        self._pipes = dice.choice((0.0, 0.0, 0.05, 0.3))
        self._deletes = dice.choice((0.0, 0.0, 0.0, 0.05))
        self._epochs = dice.chance(0.2)
        self._replica_id = dice.choice((-1, -1, -1, -1, -2))
        self._limits = [dice.choice(_LIMITS) for _ in range(2)]
        self._partition_limits = [dice.choice(_LIMITS) for _ in range(2)]
        self._wait = dice.choice(_WAITS)
        self._min_bytes = dice.choice((1, 1, 1, 1, 0, 1000, 1 << 20))
        self._pool = self._draw_pool()
        self._style = dice.choice(("all", "all", "some", "alternate"))
        self._turn = 0
        self._recreated = self._moved = 0
        # Kafka 4.3 may not finish DeleteRecords for a minute after a leader was moved away and back.
        self._moves = 0.0 if self._deletes else dice.choice((0.0, 0.05))
        self._reads_zstd = not self._changes_version and not 4 <= self._version < _ZSTD_VERSION

    def _draw_pool(self) -> list[tuple[str, int]]:
        topics = [LIVE, *(name for name in STATIC if self._dice.chance(0.4))]
        pool = [
            (topic, partition)
            for topic in topics
            for partition in range(STATIC.get(topic, self._partitions))
            if self._dice.chance(0.8)
        ]
        self._dice.shuffle(pool)
        return pool or [(LIVE, 0)]

    def sequence(self, seed: int) -> Sequence:
        steps: list[Step] = [self._produce(through=False) for _ in range(self._dice.choice((0, 1, 3, 10, 10)))]
        for _ in range(self._dice.randint(20, self._dice.choice((40, 80, 200)))):
            steps += self._draw_steps()
        return Sequence(seed, self._partitions, self._hold, tuple(steps))

    def _draw_steps(self) -> list[Step]:
        dice = self._dice
        if dice.chance(self._moves) and self._moved < 2:
            self._moved += 1
            meanwhile = attrs.evolve(self._fetch(), during=())
            return [MoveLeader(dice.randrange(self._partitions), meanwhile), *self._perhaps_pause(), self._fetch()]
        if dice.chance(self._deletes):
            if dice.chance(0.3) and self._recreated < 2:
                self._recreated += 1
                return [Recreate(dice.choice((0, 5, 30))), *self._perhaps_pause(), self._fetch()]
            deleted = DeleteRecords(dice.randrange(self._partitions), dice.random())
            return [deleted, *self._perhaps_pause(), self._fetch()]
        if dice.chance(self._pipes):
            return [self._pipeline()]
        if dice.chance(self._writes):
            return [self._produce(through=dice.chance(0.5)), self._fetch()]
        return [self._fetch()]

    def _perhaps_pause(self) -> list[Step]:
        return [Pause(1.3)] if self._dice.chance(0.5) else []

    def _produce(self, *, through: bool) -> Produce:
        dice = self._dice
        magic = dice.choice((2, 2, 2, 1, 0)) if through else 2
        return Produce(
            dice.randrange(self._partitions),
            dice.choice((1, 1, 3, 50)),
            dice.choice((10, 10, 300, 5_000, 40_000)),
            dice.choice((0, 0, 0, 1, 2, 3 if magic else 0, 4 if magic == 2 and self._reads_zstd else 0)),
            through,
            magic,
        )

    def _asks(self) -> list[Ask]:
        dice, pool = self._dice, self._pool
        self._turn += 1
        if self._style == "alternate":
            pool = pool[::2] if self._turn % 2 else pool[1::2] or pool
        elif self._style == "some" or dice.chance(0.1):
            pool = [each for each in pool if dice.chance(0.6)] or pool[:1]
        if dice.chance(0.2):
            pool = dice.sample(pool, len(pool))
        return [self._ask(*each) for each in pool]

    def _ask(self, topic: str, partition: int) -> Ask:
        dice = self._dice
        place: Place = "next"
        amount = 0.0
        if dice.chance(self._seeks):
            place = dice.choice(("again", "start", "end", "fraction", "fraction", "back", "back"))
            amount = dice.random() if place == "fraction" else dice.choice((1, 2, 10, 1_000))
        elif dice.chance(self._is_odd / 4):
            place, amount = dice.choice(("below", "beyond")), dice.choice((1, 2, 1_000_000))
        epochs: tuple[Epoch, Epoch] = (
            dice.choice(("none", "right", "right", "right", "old", "new")) if self._epochs else "none",
            dice.choice(("none", "none", "right", "old", "new")) if self._epochs and dice.chance(0.3) else "none",
        )
        return Ask(topic, partition, place, amount, dice.choice(self._partition_limits), *epochs)

    def _fetch(self) -> Fetch:
        dice = self._dice
        version = dice.randint(self._oldest, self._newest) if self._changes_version else self._version
        asks = self._asks()
        use: SessionUse = "none"
        if self._uses_sessions and version >= 7:
            use = dice.choices(("go on", "new", "none", "close", "wrong epoch", "unknown id"), (40, 2, 1, 1, 1, 1))[
                0
            ]
        oddity: Oddity = "none"
        if dice.chance(self._is_odd):
            oddity = dice.choice(
                ("empty topic", "nothing", "unknown topic", "unknown partition", "twice", "twice apart", "old id")
            )
        during = (self._produce(through=dice.chance(0.5)),) if dice.chance(self._writes / 2) else ()
        return Fetch(
            version,
            tuple(asks),
            1 - self._isolation if self._changes_isolation and dice.chance(0.5) else self._isolation,
            dice.choice(_WAITS) if dice.chance(0.3) else self._wait,
            dice.choice((0, 1, 1000)) if dice.chance(0.1) else self._min_bytes,
            dice.choice(self._limits),
            self._replica_id,
            oddity,
            use,
            during,
        )

    def _pipeline(self) -> Pipeline:
        return Pipeline(tuple(self._piped() for _ in range(self._dice.randint(2, 8))))

    def _piped(self) -> Piped:
        dice = self._dice
        apis = ("produce", "list offsets", "commit", "committed", "metadata", "coordinator", "versions", "fetch")
        api = dice.choices(apis, (8, 4, 3, 3, 2, 1, 1, 3))[0]
        version = dice.choice((0.0, 0.0, dice.random(), 1.0))
        count, size = dice.choice(((1, 10), (1, 10), (5, 2_000), (40, 40_000), (4, 900_000)))
        return Piped(
            api,  # type: ignore[arg-type]
            version,
            dice.randrange(self._partitions),
            count,
            size,
            dice.choice((0, 0, 1)),
            dice.chance(0.7),
            dice.choice((0, 0, 100)),
        )
