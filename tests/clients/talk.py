"""The programs' side of the conversation, for those written in Python."""

import base64
import json
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["CHUNK_BYTES", "MAX_BYTES", "Command", "Talk", "from_text", "serve", "to_text"]

CHUNK_BYTES = 16_384
"""The default limit of a partition in a fetch."""

MAX_BYTES = 50 * 1024**2
"""The default limit of a whole fetch."""

Header = tuple[str, bytes | None]


def to_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def from_text(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


class Talk:
    """The output of a running command, and whether it must stop."""

    def __init__(self) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self.count = 0

    def _listen(self) -> None:
        for line in sys.stdin:
            self._lines.put(line)
        self._lines.put(None)

    def next_command(self) -> dict[str, Any] | None:
        """The next command; None at the end. "stop" has done its work when it is read here."""
        self.count = 0
        while (line := self._lines.get()) is not None:
            command: dict[str, Any] = json.loads(line)
            if command["do"] != "stop":
                return command
        return None

    def has_commands(self) -> bool:
        """Is anything more on its way to us?"""
        return not self._lines.empty()

    def say(self, **what: object) -> None:
        print(json.dumps(what), flush=True)

    def record(
        self,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[Header],
    ) -> None:
        """Report one record, in the order of reading."""
        self.count += 1
        shown = [[name, to_text(data)] for name, data in headers]
        self.say(record=[partition, offset, timestamp_ms, to_text(key), to_text(value), shown])


Command = Callable[[Talk, dict[str, Any]], object]


def serve(commands: Mapping[str, Command]) -> None:
    """Execute the commands of standard input until it ends."""
    talk = Talk()
    while (request := talk.next_command()) is not None:
        try:
            talk.say(done=commands[request["do"]](talk, request))
        except Exception as wrong:
            traceback.print_exc()
            talk.say(error=repr(wrong))
