"""The log on stderr: one line per event, as key-value pairs or JSON, never with the contents of records.

``2026-01-01T00:00:00.000Z info listening address=127.0.0.1:9092 node=1``

Logging never raises and never waits. While nobody reads the other end of a full pipe, lines are dropped and
counted, since a stalled log collector must not stall the clients.
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
"""The maximum length of one value; two lines of that size fit the 4 KiB that a pipe accepts atomically."""
_MOST_KEYS: Final = 100
"""The most values of *per* that have lines of their own within *every_s*; further ones share one line."""
_OTHERS: Final = "others"

Scalar = str | int | float | bool | None
Watch = Callable[[Level, str, Mapping[str, Scalar]], None]


@attrs.define
class _Repeat:
    last_s: float
    suppressed: int = 0


@attrs.define
class Log:
    """A log that writes one line for each event to a stream; all tasks may share it.

    Its methods take the name of the event, such as ``listening``, and its fields as keyword arguments. Events below
    ``level`` are not written. Values are formatted by ``str``: pass names, addresses, counts, error codes and
    exceptions, never records. Bytes are logged as their length only, and the value of a field that is named like a
    credential is masked.

    With *every_s*, an event is logged at most once in that many seconds for each value of *per*; the next line that
    is logged has ``suppressed=`` with the number of events that were not. If there are more than 100 values of
    *per* in that time, the others share one line, since clients may choose them.
    """

    format: Format
    level: Level
    stream: TextIO
    wall_s: Callable[[], float] = time.time
    clock_s: Callable[[], float] = time.monotonic
    watch: Watch | None = None
    """Called with level, name and fields of each event above debug level, even if
    ``level`` or *every_s* keeps it out of the log; the values of the fields are those of a log line."""
    _dropped: int = attrs.field(default=0, init=False)
    _repeats: dict[str, dict[str, _Repeat]] = attrs.field(factory=dict, init=False)
    """By event and value of *per*; those of the oldest line first."""

    def debug(self, event: str, /, *, every_s: float = 0, per: object = None, **fields: object) -> None:
        """Log *event* with *fields* at debug level, for a detail that helps in troubleshooting.

        With *every_s*, it is logged at most once in that many seconds for each value of *per*; the next line counts
        the others in ``suppressed=``.
        """
        self._log_event("debug", event, every_s, per, fields)

    def info(self, event: str, /, *, every_s: float = 0, per: object = None, **fields: object) -> None:
        """Log *event* with *fields* at info level, for normal operation.

        With *every_s*, it is logged at most once in that many seconds for each value of *per*; the next line counts
        the others in ``suppressed=``.
        """
        self._log_event("info", event, every_s, per, fields)

    def warning(self, event: str, /, *, every_s: float = 0, per: object = None, **fields: object) -> None:
        """Log *event* with *fields* at warning level, for an error of a client, a broker or the environment.

        With *every_s*, it is logged at most once in that many seconds for each value of *per*; the next line counts
        the others in ``suppressed=``.
        """
        self._log_event("warning", event, every_s, per, fields)

    def error(self, event: str, /, *, every_s: float = 0, per: object = None, **fields: object) -> None:
        """Log *event* with *fields* at error level, for a bug in Sidefetch or a failure that needs an operator.

        With *every_s*, it is logged at most once in that many seconds for each value of *per*; the next line counts
        the others in ``suppressed=``.
        """
        self._log_event("error", event, every_s, per, fields)

    def _log_event(
        self, level: Level, event: str, every_s: float, per: object, fields: Mapping[str, object]
    ) -> None:
        is_watched = self.watch is not None and level != "debug"
        is_written = _ORDER[level] >= _ORDER[self.level]
        if not is_watched and not is_written:
            return
        try:
            shown = {name: _format_value(name, value) for name, value in fields.items()}
            if self.watch is not None and is_watched:
                self.watch(level, event, shown)
            if not is_written:
                return
            suppressed = self._take_suppressed(event, every_s, per) if every_s > 0 else 0
            if suppressed is None:
                return
            if suppressed:
                shown["suppressed"] = suppressed
            self._write(self._format_line(level, event, shown))
        except Exception:  # a failure of the log must not stop the program
            self._dropped += 1

    def _take_suppressed(self, event: str, every_s: float, per: object) -> int | None:
        """Return the number of events suppressed since the last line of this event and *per*, to write a line now.

        Returns: None if this event is suppressed, too.
        """
        repeats, key, now_s = self._repeats.setdefault(event, {}), str(per), self.clock_s()
        if key not in repeats and len(repeats) >= _MOST_KEYS:
            oldest = next(iter(repeats))
            if now_s - repeats[oldest].last_s < every_s:
                key = _OTHERS
            else:
                del repeats[oldest]
        repeat = repeats.get(key)
        if repeat is not None and now_s - repeat.last_s < every_s:
            repeat.suppressed += 1
            return None
        repeats.pop(key, None)
        repeats[key] = _Repeat(now_s)
        return repeat.suppressed if repeat is not None else 0

    def _format_line(self, level: Level, event: str, fields: Mapping[str, Scalar]) -> str:
        stamp = datetime.fromtimestamp(self.wall_s(), UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self.format == "json":
            head = {"timestamp": stamp, "level": level, "event": event}  # win over fields of those names
            return json.dumps({**head, **fields, **head}, separators=(",", ":")) + "\n"
        return (
            " ".join([stamp, level, event, *(f"{name}={_quote(value)}" for name, value in fields.items())]) + "\n"
        )

    def _write(self, line: str) -> None:
        if not _can_write(self.stream):
            self._dropped += 1
            return
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            line = self._format_line("warning", "log-lines-dropped", {"count": dropped}) + line
        self.stream.write(line)
        self.stream.flush()


def _can_write(stream: TextIO) -> bool:
    """Return whether *stream* accepts a line without waiting; a stream without a file descriptor always does."""
    try:
        descriptor = stream.fileno()
    except OSError:  # includes io.UnsupportedOperation
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))


def _format_value(name: str, value: object) -> Scalar:
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
    if len(text) > _MOST_CHARS:  # the end of a traceback matters most
        text = f"{text[: _MOST_CHARS // 4]}...{text[-_MOST_CHARS * 3 // 4 :]}"
    return text


def _quote(value: Scalar) -> str:
    if isinstance(value, str):
        is_printable = value.isprintable()  # false for controls of the text direction, too
        is_plain = is_printable and _PLAIN.fullmatch(value)
        return value if is_plain else json.dumps(value, ensure_ascii=not is_printable)
    return json.dumps(value)
