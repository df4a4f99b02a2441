"""Random combinations of client, settings, topic, steps and event, by their seed."""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import attrs

from tests.clients.programs import DRIVE
from tests.differential.settings import Value, draw_settings
from tests.differential.topics import EVENT_SHAPES, RETENTION, SHAPES, Ends, Shape

__all__ = ["CLIENTS", "EVENTS", "Combination", "EventName", "Step", "draw", "is_direct", "request_for", "shape_of"]

EventName = Literal[
    "leaders-move",
    "broker-restarts",
    "records-deleted",
    "retention",
    "topic-recreated",
    "read-revoked",
    "partition-reassigned",
    "producers-write",
]
EVENTS: Final[Mapping[EventName, int]] = {
    "leaders-move": 4,
    "broker-restarts": 1,
    "records-deleted": 4,
    "retention": 1,
    "topic-recreated": 4,
    "read-revoked": 3,
    "partition-reassigned": 2,
    "producers-write": 4,
}
"""The relative frequency of each event."""

CLIENTS: Final = tuple(DRIVE)

NEEDS_KAFKA_3: Final = (
    "java-0.9.0.1",
    "java-0.10.2.2",
    "kafka-python-1.4.7-",
    "sarama-1.19.0-",
    "librdkafka-0.11.6",
)
"""Beginnings of the names of clients that Kafka 4 does not serve."""

_CODECS: Final[Mapping[str, frozenset[str]]] = {
    "java-0.9": frozenset({"none", "gzip", "snappy", "lz4"}),
    "java-0.10": frozenset({"none", "gzip", "snappy", "lz4"}),
    "java-0.11": frozenset({"none", "gzip", "snappy", "lz4"}),
    "java-1.": frozenset({"none", "gzip", "snappy", "lz4"}),
    "java-2.0": frozenset({"none", "gzip", "snappy", "lz4"}),
    "kafka-python-1.4.7-as-0.8": frozenset({"none", "gzip", "snappy"}),
    "kafka-python-1.4.7": frozenset({"none", "gzip", "snappy", "lz4"}),
    "kafka-python": frozenset({"none", "gzip", "lz4"}),
    "kafkajs": frozenset({"none", "gzip"}),
    "sarama-1.19.0-as-0.8": frozenset({"none", "gzip", "snappy"}),
    "sarama-1.19.0-as-0.9": frozenset({"none", "gzip", "snappy"}),
    "sarama-1.19.0": frozenset({"none", "gzip", "snappy", "lz4"}),
    "librdkafka-0.11.6": frozenset({"none", "gzip", "snappy", "lz4"}),
}
"""By prefix of clients' names, the codecs that they can decode; others can decode all."""

_OPTIONS: Final[Sequence[tuple[str, ...]]] = (
    (),
    ("--read-ahead", "on"),
    ("--read-ahead", "on"),
    ("--read-ahead", "on"),
    ("--read-ahead", "off"),
    ("--read-ahead", "on", "--fetch-buffer", "1MiB"),
    ("--read-ahead", "on", "--client-sessions", "0"),
    ("--read-ahead", "on", "--rack", "a"),
    ("--upstream-max-wait", "1s"),
    ("--memory", "16MiB", "--fetch-buffer", "1MiB"),
)
"""A smaller fetch buffer is as slow as a broker with such a ``fetch.max.bytes``: a client that has read a partition
to its end waits there, while its others have had little."""


@attrs.frozen
class Step:
    """An action of the application at a place, which is a fraction of the partition's log."""

    do: Literal["seek", "pause", "assign", "sleep", "commit"]
    partition: int
    at: float
    to: float = 0.0
    ms: int = 0
    partitions: tuple[int, ...] = ()
    """The partitions that are paused (the first) or assigned."""


@attrs.frozen
class Combination:
    """All that is drawn for one client reading one topic three times."""

    seed: str
    client: str
    shape: str
    partitions: tuple[int, ...]
    settings: Mapping[str, Value] = attrs.field(factory=dict)
    start: Mapping[int, float] = attrs.field(factory=dict)
    """Fractions of the log by partition; 0 for those that are not named."""
    steps: tuple[Step, ...] = ()
    event: EventName | None = None
    event_after_ms: int = 0
    options: tuple[str, ...] = ()
    """Options of Sidefetch."""
    isolation: str = "read_uncommitted"
    rack: str | None = None
    consumers: int = 1
    """Among which the partitions are dealt out; they share one connection to each broker."""

    def __str__(self) -> str:
        settings = " ".join(f"{name}={value}" for name, value in self.settings.items())
        steps = ",".join(f"{each.do}@{each.partition}:{each.at:.2f}" for each in self.steps)
        if self.event is not None and self.steps:
            steps = f"{len(self.steps)} sleeps"
        parts = [self.client, self.shape, "".join(f"{each:x}" for each in self.partitions), settings]
        parts += ["from " + ",".join(f"{p}:{at:.2f}" for p, at in self.start.items())] if self.start else []
        parts += [steps, self.event or "", " ".join(self.options)]
        parts += [self.isolation if self.isolation != "read_uncommitted" else ""]
        parts += [f"rack {self.rack}" if self.rack else ""]
        parts += [f"{self.consumers} consumers" if self.consumers > 1 else ""]
        return " | ".join(each for each in parts if each)


def is_direct(client: str, kafka: str) -> bool:
    """Return whether Kafka of this version serves *client*."""
    return kafka.startswith("3.") or not client.startswith(NEEDS_KAFKA_3)


def shape_of(name: str) -> Shape:
    return {**SHAPES, **EVENT_SHAPES, RETENTION.name: RETENTION}[name]


def draw(
    seed: str, kafka: str, clients: Sequence[str] = CLIENTS, *, together: str | None = None, shares: str = "off"
) -> Combination:
    """Return the combination of *seed*; the same for the same arguments.

    Args:
        together: combinations with the same value read the same topic through the same Sidefetch, if their clients
            can and they have no event.
        shares: the value of ``--share-reads``.
    """
    dice = random.Random(seed)
    common = dice if together is None else random.Random(together)
    client = dice.choice(list(clients))
    event: EventName | None = None
    if dice.random() < 0.2 and is_direct(client, kafka) and "from" in DRIVE[client]:
        event = dice.choices([*EVENTS], [*EVENTS.values()])[0]
    shape = _shape(dice if event is not None else common, client, event)
    used = [each for each in range(shape.partitions) if each not in shape.empty]
    partitions = tuple(range(shape.partitions))
    if event is None and dice.random() < 0.2 and "from" in DRIVE[client]:
        some = dice.sample(partitions, dice.randint(1, len(partitions)))
        partitions = tuple(sorted({*some, dice.choice(used)}))
    start = {}
    if event is None and dice.random() < 0.4 and "from" in DRIVE[client]:
        start = {each: round(dice.random() * 0.7, 3) for each in partitions if each in used and dice.random() < 0.7}
    return Combination(
        seed=seed,
        client=client,
        shape=shape.name,
        partitions=partitions,
        settings=draw_settings(dice, client, largest_bytes=shape.largest_bytes, is_small=event is not None),
        start=start,
        steps=_event_steps(dice, shape) if event else _steps(dice, client, used, partitions),
        event=event,
        event_after_ms=dice.choice((300, 800, 1_500)) if event else 0,
        options=common.choice(_OPTIONS) + (("--share-reads", shares) if shares != "off" else ()),
        isolation=_isolation(dice, client, shape),
        rack=dice.choice((None, None, "a", "b")) if "rack" in DRIVE[client] else None,
        consumers=dice.choice((1, 2, 3)) if "consumers" in DRIVE[client] else 1,
    )


def _shape(dice: random.Random, client: str, event: EventName | None) -> Shape:
    if event == "retention":
        return RETENTION
    if event is not None:
        return dice.choice([*EVENT_SHAPES.values()])
    beginning = max((each for each in _CODECS if client.startswith(each)), key=len, default="")
    known = _CODECS.get(beginning)
    shapes = dice.sample([*SHAPES.values()], len(SHAPES))
    return next(each for each in shapes if known is None or known.issuperset(each.codecs))


def _isolation(dice: random.Random, client: str, shape: Shape) -> str:
    if "isolation" not in DRIVE[client]:
        return "read_uncommitted"
    likely = 0.7 if shape.kind == "transactions" else 0.3
    return "read_committed" if dice.random() < likely else "read_uncommitted"


def _steps(dice: random.Random, client: str, used: Sequence[int], partitions: Sequence[int]) -> tuple[Step, ...]:
    """Draw up to five steps that *client* can do; none in half of the cases."""
    can = sorted(DRIVE[client] & {"seek", "pause", "assign", "sleep", "commit"})
    if not can or dice.random() < 0.5:
        return ()
    steps = []
    for _ in range(dice.randint(1, 5)):
        do: Any = dice.choice(can)
        partition = dice.choice([each for each in partitions if each in used])
        at, ms = round(dice.random() * 0.9, 3), dice.choice((50, 200, 500))
        match do:
            case "seek":
                steps.append(Step(do, partition, at, to=round(dice.random() * 0.9, 3)))
            case "pause":
                steps.append(Step(do, partition, at, ms=ms, partitions=(dice.choice(partitions),)))
            case "assign":
                some = dice.sample(list(partitions), dice.randint(1, len(partitions)))
                steps.append(Step(do, partition, at, ms=ms, partitions=tuple(sorted(some))))
            case "sleep":
                steps.append(Step(do, partition, at, ms=ms))
            case _:
                steps.append(Step(do, partition, at))
    return tuple(steps)


def _event_steps(dice: random.Random, shape: Shape) -> tuple[Step, ...]:
    """Let the reader be slow, so that the event meets it on its way: some four seconds altogether."""
    sleeps = 12
    return tuple(
        Step("sleep", dice.randrange(shape.partitions), round((number + 0.5) / sleeps, 3), ms=350)
        for number in range(sleeps)
    )


def request_for(combination: Combination, ends: Mapping[int, Ends]) -> dict[str, Any]:
    """Return the ``drive`` command for a topic with these *ends*; topic, bootstrap and group are still missing.

    A step after which the end of its partition could come before the step itself is left out.
    """

    def offset(partition: int, fraction: float) -> int:
        log = ends[partition]
        return log.first + int((log.last - log.first) * fraction)

    until = {each: ends[each].last for each in combination.partitions if ends[each].last >= ends[each].first}
    steps: list[dict[str, Any]] = []
    for step in combination.steps:
        if step.partition not in until:
            continue
        at, to = offset(step.partition, step.at), offset(step.partition, step.to)
        made: dict[str, Any] = {"at": [step.partition, at], "do": step.do}
        match step.do:
            case "seek":
                if max(at, to) >= until[step.partition]:
                    continue
                made |= {"partition": step.partition, "to": to}
            case "pause":
                made |= {"partition": step.partitions[0], "ms": step.ms}
            case "assign":
                made |= {"partitions": list(step.partitions), "ms": step.ms}
            case "sleep":
                made |= {"ms": step.ms}
            case "commit":
                pass
        steps.append(made)
    return {
        "settings": dict(combination.settings),
        "from": {str(p): offset(p, combination.start.get(p, 0.0)) for p in combination.partitions},
        "until": {str(p): last for p, last in until.items()},
        "steps": steps,
        "isolation": combination.isolation,
        "rack": combination.rack,
        "consumers": combination.consumers,
    }
