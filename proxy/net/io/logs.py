"""One line an event, in key-values or JSON, on stderr: what happened, never what was in the records.

``2026-01-01T00:00:00.000Z info listening address=127.0.0.1:9092 node=1``

Logging never raises and never waits: a line is dropped, and counted, while nobody reads the other end of a full
pipe, since a stalled log collector must not stall the clients.
"""

import json
import math
import re
import select
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

import attrs

__all__ = ["Format", "Level", "Log"]

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["text", "json"]

_ORDER: Final[Mapping[str, int]] = {"debug": 0, "info": 1, "warning": 2, "error": 3}
_PLAIN: Final = re.compile(r"[^\s\"'=\\\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SECRET: Final = re.compile(r"password|passwd|secret|token|credential|jaas", re.IGNORECASE)
_MOST_CHARS: Final = 2000
"""Of one value; two lines of that size fit the 4 KiB that a pipe takes whole."""
_MOST_REPEATS: Final = 1000
"""Repeated events whose last time is remembered; the oldest is forgotten first."""

Scalar = str | int | float | bool | None
Watch = Callable[[Level, str, Mapping[str, Scalar]], None]


@attrs.define
class _Repeat:
    last_s: float
    suppressed: int = 0


@attrs.define
class Log:
    """Where events are told; safe to share by all tasks.

    Values are shown by ``str``: give names, addresses, counts, error codes and exceptions, never records. Bytes are
    shown as their length only, and a field that is named like a credential not at all.
    With *every_s* an event is told at most once in so many seconds *per* its value; the next line that is told has
    ``suppressed=`` with the number of those that were not.
    """

    format: Format
    level: Level
    stream: TextIO
    wall_s: Callable[[], float] = time.time
    clock_s: Callable[[], float] = time.monotonic
    watch: Watch | None = None
    """Is told all but what is for debugging, each time, whatever the level; of values, what a line would show."""
    _dropped: int = attrs.field(default=0, init=False)
    _repeats: dict[tuple[str, str], _Repeat] = attrs.field(factory=dict, init=False)

    def debug(self, event: str, /, *, every_s: float = 0, per: object = None, **fields: object) -> None:
        """For whoever looks for a fault."""
        self._tell("debug", event, every_s, per, fields)

    def info(self, event: str, /, *, every_s: float = 0, per: object = None, **fields: object) -> None:
        """The course of things."""
        self._tell("info", event, every_s, per, fields)

    def warning(self, event: str, /, *, every_s: float = 0, per: object = None, **fields: object) -> None:
        """Somebody broke a rule or is away; Sidefetch goes on."""
        self._tell("warning", event, every_s, per, fields)

    def error(self, event: str, /, *, every_s: float = 0, per: object = None, **fields: object) -> None:
        """A bug, or nothing goes on."""
        self._tell("error", event, every_s, per, fields)

    def _tell(self, level: Level, event: str, every_s: float, per: object, fields: Mapping[str, object]) -> None:
        is_watched = self.watch is not None and level != "debug"
        is_written = _ORDER[level] >= _ORDER[self.level]
        if not is_watched and not is_written:
            return
        try:
            shown = {name: _shown(name, value) for name, value in fields.items()}
            if self.watch is not None and is_watched:
                self.watch(level, event, shown)
            if not is_written:
                return
            suppressed = self._due(event, every_s, per) if every_s > 0 else 0
            if suppressed is None:
                return
            if suppressed:
                shown["suppressed"] = suppressed
            self._write(self._line(level, event, shown))
        except Exception:  # the program is worth more than its log
            self._dropped += 1

    def _due(self, event: str, every_s: float, per: object) -> int | None:
        """How many were not told since the last that was; None if this one is not told either."""
        key, now_s = (event, str(per)), self.clock_s()
        repeat = self._repeats.get(key)
        if repeat is not None and now_s - repeat.last_s < every_s:
            repeat.suppressed += 1
            return None
        self._repeats.pop(key, None)
        while len(self._repeats) >= _MOST_REPEATS:
            del self._repeats[next(iter(self._repeats))]
        self._repeats[key] = _Repeat(now_s)
        return repeat.suppressed if repeat is not None else 0

    def _line(self, level: Level, event: str, fields: Mapping[str, Scalar]) -> str:
        at = datetime.fromtimestamp(self.wall_s(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self.format == "json":
            head = {"at": at, "level": level, "event": event}  # comes first, and wins over fields of those names
            return json.dumps({**head, **fields, **head}, separators=(",", ":")) + "\n"
        return " ".join([at, level, event, *(f"{name}={_quoted(value)}" for name, value in fields.items())]) + "\n"

    def _write(self, line: str) -> None:
        if not _would_take(self.stream):
            self._dropped += 1
            return
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            line = self._line("warning", "log-lines-dropped", {"count": dropped}) + line
        self.stream.write(line)
        self.stream.flush()


def _would_take(stream: TextIO) -> bool:
    """Whether a line can be written without waiting; for what is no file it always can."""
    try:
        descriptor = stream.fileno()
    except OSError:  # io.UnsupportedOperation is one
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


def _shown(name: str, value: object) -> Scalar:
    if _SECRET.search(name):
        return "***"
    match value:
        case None | bool() | int():
            return value
        case float():
            return float(f"{value:.6g}") if math.isfinite(value) else str(value)  # JSON has no infinity
        case bytes() | bytearray() | memoryview():
            return f"<{len(value)} bytes>"
        case BaseException():
            text = f"{type(value).__name__}: {value}" if str(value) else type(value).__name__
        case _:
            text = str(value)
    if len(text) > _MOST_CHARS:  # of a traceback, the end tells most
        text = f"{text[: _MOST_CHARS // 4]}...{text[-_MOST_CHARS * 3 // 4 :]}"
    return text


def _quoted(value: Scalar) -> str:
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else json.dumps(value, ensure_ascii=not value.isprintable())
    return json.dumps(value)
