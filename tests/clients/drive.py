"""The parts of ``drive`` that the Python programs share: the request, the due steps, and the report of records."""

import time
from collections.abc import Iterator
from typing import Any, Final
from zlib import crc32

from tests.clients.talk import Talk

__all__ = ["Drive", "seek_or_pause"]

_MOST_RECORDS: Final = 500
_MOST_HEARD: Final = 20
_NEVER: Final = float("inf")


class Drive:
    """The state of one ``drive`` command; the program polls its library and carries out the steps."""

    def __init__(self, talk: Talk, request: dict[str, Any]) -> None:
        self._talk = talk
        self._began_s = time.monotonic()
        self.topic: str = request["topic"]
        self.next = {int(partition): offset for partition, offset in request["from"].items()}
        """By partition, the offset after the last reported record, or the destination of a seek."""
        self.assigned = set(self.next)
        self._placed: set[int] = set()
        self._missing = {int(partition): offset for partition, offset in request["until"].items()}
        self._steps: list[dict[str, Any]] = list(request.get("steps", []))
        self._earliest = self._earliest_steps()
        self._resumes_s: dict[int, float] = {}
        self._assigns_all_s = _NEVER
        self._delivered: set[int] = set()
        self._records: list[tuple[int, int, int, int]] = []
        self._heard: set[str] = set()

    @property
    def is_done(self) -> bool:
        return not self._missing

    def report(
        self, partition: int, offset: int, timestamp_ms: int | None, key: bytes | None, value: bytes | None
    ) -> Iterator[dict[str, Any]]:
        """Note one record; yield the steps that are due after it, but for sleeps, which are done here."""
        crc = crc32(value or b"", crc32(key or b""))
        self._records.append((partition, offset, crc, -1 if timestamp_ms is None else timestamp_ms))
        self.next[partition] = offset + 1
        self._delivered.add(partition)
        if offset >= self._missing.get(partition, _NEVER):
            del self._missing[partition]
        if len(self._records) == _MOST_RECORDS:
            self.flush()
        if offset >= self._earliest.get(partition, _NEVER):
            yield from self._due(partition, offset)

    def flush(self) -> None:
        """Say which records came since the last time."""
        if self._records:
            self._talk.say(read=[int((time.monotonic() - self._began_s) * 1000), self._records])
            self._records = []

    def hear(self, error: object) -> None:
        """Say once that there was *error*."""
        if str(error) not in self._heard and len(self._heard) < _MOST_HEARD:
            self._heard.add(str(error))
            self._talk.say(heard=str(error))

    def committed(self, offsets: dict[int, int]) -> None:
        self._talk.say(committed=offsets)

    def to_commit(self) -> dict[int, int]:
        """Return, by assigned partition, the offset after the delivered records."""
        return {each: self.next[each] for each in sorted(self._delivered & self.assigned)}

    def pause(self, step: dict[str, Any]) -> None:
        """Note when the partition of *step* is to be resumed."""
        until_s = time.monotonic() + step["ms"] / 1000
        self._resumes_s[step["partition"]] = max(until_s, self._resumes_s.get(step["partition"], 0.0))

    def paused(self) -> list[int]:
        return [*self._resumes_s]

    def take_resumed(self) -> list[int]:
        """Return the assigned partitions whose pause is over by now."""
        now_s = time.monotonic()
        over = [each for each, until_s in self._resumes_s.items() if until_s <= now_s]
        for each in over:
            del self._resumes_s[each]
        return [each for each in over if each in self.assigned]

    def assign(self, step: dict[str, Any]) -> list[int]:
        """Return the partitions that are to be assigned by *step* from now on."""
        self.assigned = set(step["partitions"])
        self._placed &= self.assigned
        self._assigns_all_s = time.monotonic() + step["ms"] / 1000
        return sorted(self.assigned)

    def take_unplaced(self) -> list[int]:
        """Return the partitions that were assigned since the last call: the library has no position of them yet."""
        unplaced = self.assigned - self._placed
        self._placed |= unplaced
        return sorted(unplaced)

    def is_all_due(self) -> bool:
        """Return whether all partitions are to be assigned again, once each time."""
        if time.monotonic() < self._assigns_all_s:
            return False
        self._assigns_all_s = _NEVER
        self.assigned = set(self.next)
        return True

    def _due(self, partition: int, offset: int) -> Iterator[dict[str, Any]]:
        due = [step for step in self._steps if step["at"][0] == partition and step["at"][1] <= offset]
        self._steps = [step for step in self._steps if step not in due]
        self._earliest = self._earliest_steps()
        for step in due:
            match step["do"]:
                case "sleep":
                    self.flush()
                    time.sleep(step["ms"] / 1000)
                case "seek":
                    self.next[partition] = step["to"]
                    yield step
                case _:
                    yield step

    def _earliest_steps(self) -> dict[int, int]:
        earliest: dict[int, int] = {}
        for step in self._steps:
            partition, offset = step["at"]
            earliest[partition] = min(offset, earliest.get(partition, offset))
        return earliest


def seek_or_pause(step: dict[str, Any], state: Drive, consumer: Any, places: dict[int, Any]) -> None:
    """Carry out a step on a *consumer* with the methods of kafka-python, which aiokafka has, too."""
    is_assigned = step["partition"] in state.assigned
    if step["do"] == "pause":
        state.pause(step)
        if is_assigned:
            consumer.pause(places[step["partition"]])
    elif is_assigned:
        consumer.seek(places[step["partition"]], step["to"])
