"""Client programs that read: kept alive between combinations, killed when they do not finish in time."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self

from tests.clients.conversation import Client
from tests.differential.verdict import End, Reading

__all__ = ["Programs", "Reader"]

_MOST_IDLE: Final = 18
"""A Java program takes some 100 MB."""
_MOST_HEARD: Final = 40


class Programs:
    """The client programs that run; each is lent to one reader at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: OrderedDict[Client, None] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for client in self._idle:
            client.__exit__(None, None, None)
        self._idle.clear()

    def take(self, name: str) -> Client:
        """Return a program that runs and is at nothing."""
        with self._lock:
            for client in reversed(self._idle):
                if client.name == name:
                    del self._idle[client]
                    return client
        return Client(name).__enter__()

    def give_back(self, client: Client) -> None:
        """Keep a program that has finished its command; the one that was used least recently has to go."""
        with self._lock:
            self._idle[client] = None
            spare = self._idle.popitem(last=False)[0] if len(self._idle) > _MOST_IDLE else None
        if spare is not None:
            spare.__exit__(None, None, None)


class Reader:
    """One ``drive`` command under way in a thread of its own."""

    def __init__(self, client: Client, request: Mapping[str, Any], give_back: Callable[[Client], None]) -> None:
        self._client, self._give_back = client, give_back
        self.group: str | None = request.get("group")
        self._waits = [(*each["at"], each["ms"]) for each in request["steps"] if each["do"] in ("sleep", "pause")]
        self._lines: list[tuple[int, list[tuple[int, int, int, int]]]] = []
        self._heard: list[str] = []
        self._committed: dict[int, int] = {}
        self._end: tuple[End, str] | None = None
        self._lasted_s = 0.0
        self.is_given_up = threading.Event()
        self._began_s = time.monotonic()
        client.write({"do": "drive", **request})
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    @property
    def has_begun(self) -> bool:
        return bool(self._lines) or self._end is not None

    @property
    def has_ended(self) -> bool:
        return self._end is not None

    @property
    def lasted_s(self) -> float:
        """Return the duration until the reader's end, or until now."""
        return self._lasted_s or time.monotonic() - self._began_s

    def give_up(self) -> None:
        """Kill a program that has not finished."""
        self.is_given_up.set()

    def reading(self) -> Reading:
        """Return the reading, once the reader has ended."""
        self._thread.join()
        assert self._end is not None
        end, error = self._end
        lasted_ms = int(self._lasted_s * 1_000)
        return Reading(self._lines, end, lasted_ms, error, self._heard, self._committed, waits=self._waits)

    def _listen(self) -> None:
        for answer in self._answers():
            match answer:
                case {"read": [ms, rows]}:
                    self._lines.append((ms, rows))
                case {"heard": text}:
                    if len(self._heard) < _MOST_HEARD:
                        self._heard.append(text)
                case {"committed": offsets}:
                    self._committed |= {int(partition): offset for partition, offset in offsets.items()}
                case {"done": _}:
                    self._finish("done")
                case {"error": text}:
                    self._finish("error", text)
        if self._end is None:
            has_ended = self._client.has_ended
            fate = self._client.fate() if has_ended else ""
            self._client.__exit__(None, None, None)
            if has_ended:
                self._finish("error", f"the program ended: {fate}")
            else:
                self._finish("stuck")

    def _answers(self) -> Iterator[Any]:
        while self._end is None and not self.is_given_up.is_set():
            if (answer := self._client.next_answer(0.25)) is not None:
                yield answer
            elif self._client.has_ended:
                return

    def _finish(self, end: End, error: str = "") -> None:
        self._lasted_s = time.monotonic() - self._began_s
        if end == "done" or (end == "error" and not error.startswith("the program ended")):
            self._give_back(self._client)
        self._end = (end, error)
