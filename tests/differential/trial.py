"""One combination, run: three readers started together, an event in their midst, and the verdict."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from tests.differential.combinations import Combination, is_direct, request_for, shape_of
from tests.differential.events import Scene, ends_after, fire
from tests.differential.readers import Reader
from tests.differential.stage import Side, Stage
from tests.differential.topics import fill
from tests.differential.verdict import Expectation, Problem, Reading, Verdict, judge
from tests.kafka.admin import unique

__all__ = ["Trial", "run"]

_DIRECT_S: Final = 60.0
"""The longest time of a direct reader."""
_SLOWER_BY: Final = 4.0
_BEGIN_S: Final = 8.0
_GROUP_MEMBERS: Final = ("kafkajs",)
"""Clients that read in a group only."""
_TRUTH: Final = "java"
"""Reads the records for clients that the brokers do not serve."""


@attrs.frozen
class Trial:
    """The result of a combination."""

    combination: Combination
    verdict: Verdict
    direct_ms: int = 0
    control_ms: int = 0
    side_ms: int = 0
    readings: Mapping[str, Reading] = attrs.field(factory=dict)


def run(
    stage: Stage, combination: Combination, *, limit_s: float = 25.0, is_distant: bool = False, slowest_ms: int = 0
) -> Trial:
    """Run *combination*; a reader through Sidefetch may take *limit_s*, or longer if the direct ones do.

    Args:
        is_distant: the control reads from brokers that are some milliseconds away.
        slowest_ms: how long a direct reader took in an earlier run, at most.
    """
    with stage.visiting(alone=combination.event == "broker-restarts"):
        try:
            return _run(stage, combination, limit_s, is_distant=is_distant, slowest_ms=slowest_ms)
        except Exception as wrong:
            return Trial(combination, Verdict("void", [Problem("error", f"the harness: {wrong!r}")]))


def _run(stage: Stage, combination: Combination, limit_s: float, *, is_distant: bool, slowest_ms: int) -> Trial:
    shape = shape_of(combination.shape)
    served = is_direct(combination.client, stage.kafka)
    home: Side = stage.main if served else stage.reference()
    if combination.event is None:
        topic = stage.main.topic(shape)
        home.topic(shape)
    else:
        topic = fill(stage.main.cluster, stage.main.admin, shape, unique(shape.name))
    sidefetch = stage.sidefetch(combination.options)
    ends = ends_after(combination.event, topic)
    request = request_for(combination, ends) | {"topic": topic.name}
    until = {int(partition): last for partition, last in request["until"].items()}
    wanted = {"direct": home.cluster.bootstrap, "control": home.cluster.bootstrap, "side": sidefetch.bootstrap}
    if is_distant:
        wanted["control"] = stage.distant(home)
    names = dict.fromkeys(wanted, combination.client)
    if not served:
        wanted["truth"], names["truth"] = stage.main.cluster.bootstrap, _TRUTH
    readers = _start(stage, combination, request, wanted, names)

    scene = Scene(stage, topic, sidefetch.bootstrap, _clock())
    expectation: Expectation = None
    failure = None
    if combination.event is not None:
        _wait_begun(readers)
        time.sleep(combination.event_after_ms / 1_000)
        try:
            expectation = fire(combination.event, scene)
        except AssertionError as wrong:
            failure = Problem("error", f"{combination.event}: {wrong}")
    _wait_ended(readers, limit_s)
    readings = {
        role: _with_stored(reader.reading(), reader, role, topic.name, home, stage.main)
        for role, reader in readers.items()
    }
    if combination.event is not None:
        stage.main.admin.delete_topic(topic.name)
    direct, control, side = readings["direct"], readings["control"], readings["side"]
    may_repeat = combination.event is not None and combination.client in _GROUP_MEMBERS
    verdict = judge(
        direct,
        control,
        side,
        until,
        expectation,
        truth=readings.get("truth"),
        may_repeat=may_repeat,
        directly_again=served and not is_direct(combination.client, "4.0"),
        slowest_ms=slowest_ms,
    )
    if failure is not None:
        verdict = Verdict("find" if combination.event == "producers-write" else "void", [failure])
    if sidefetch.process.exit_code is not None:
        ended = Problem("error", f"Sidefetch ended with {sidefetch.process.exit_code}")
        verdict = Verdict("find", [ended, *verdict.problems])
    return Trial(combination, verdict, direct.took_ms, control.took_ms, side.took_ms, readings)


def _start(
    stage: Stage,
    combination: Combination,
    request: Mapping[str, Any],
    wanted: Mapping[str, str],
    names: Mapping[str, str],
) -> dict[str, Reader]:
    """Start a reader for each role; all programs run before the first begins to read."""
    clients = {role: stage.programs.take(names[role]) for role in wanted}
    needs_group = any(each.do == "commit" for each in combination.steps) or combination.client in _GROUP_MEMBERS
    readers = {}
    for role, bootstrap in wanted.items():
        mine: dict[str, Any] = {"bootstrap": bootstrap, "client_id": f"{role}-{combination.client}"}
        if needs_group:
            mine["group"] = unique(f"{role}-{combination.client}")
        if role == "truth":
            steps = [each for each in request["steps"] if each["do"] == "seek"]
            mine |= {"settings": {"auto.offset.reset": "earliest"}, "steps": steps, "rack": None}
            mine.pop("group", None)
        readers[role] = Reader(clients[role], {**request, **mine}, stage.programs.give_back)
    return readers


def _clock() -> Callable[[], int]:
    began_s = time.monotonic()
    return lambda: int((time.monotonic() - began_s) * 1_000)


def _wait_begun(readers: Mapping[str, Reader]) -> None:
    """Return when every reader has read something, or after a while."""
    deadline_s = time.monotonic() + _BEGIN_S
    while time.monotonic() < deadline_s and not all(each.has_begun for each in readers.values()):
        time.sleep(0.02)


def _wait_ended(readers: Mapping[str, Reader], limit_s: float) -> None:
    """Return when every reader has ended; those that take too long are killed."""
    references = [reader for role, reader in readers.items() if role != "side"]
    while running := [each for each in readers.values() if not each.has_ended]:
        if all(each.has_ended for each in references):
            slower_s = max(each.lasted_s for each in references)
            limit_s = max(limit_s, _SLOWER_BY * slower_s)
        else:
            limit_s = _DIRECT_S
        for each in running:
            if each.lasted_s > limit_s:
                each.give_up()
        time.sleep(0.02)


def _with_stored(reading: Reading, reader: Reader, role: str, topic: str, home: Side, main: Side) -> Reading:
    """Add the offsets that the broker has stored, of a reader that has committed some."""
    if not reading.committed or reader.group is None:
        return reading
    side = main if role == "side" else home
    return attrs.evolve(reading, stored=side.admin.committed(reader.group, topic))
