"""Detection of a blocked event loop, with the stack at which it is blocked.

A blocked loop answers no probe, so that Kubernetes restarts the process; afterwards the cause cannot be found.
"""

import sys
import threading
import traceback
from typing import Final

import attrs
import trio

from proxy.net.io.logs import Log

__all__ = ["Heartbeat"]

_BEAT_S: Final = 1.0
_MISSED: Final = 5
"""The number of missed beats. A pause of the whole process does not count: the counting thread pauses, too."""


@attrs.define(eq=False)
class Heartbeat:
    """The detector of a blocked event loop: a task that beats, and a thread that logs an error if the beats stop.

    The task beats every *beat_s* seconds. After *missed* missing beats in a row, the thread logs the stack at which
    the event loop is blocked; when the beats are back, it logs a warning with the duration.
    """

    log: Log
    beat_s: float = _BEAT_S
    missed: int = _MISSED
    _beats: int = attrs.field(default=0, init=False)
    _has_ended: threading.Event = attrs.field(factory=threading.Event, init=False)

    async def run(self) -> None:
        """Start the thread, then beat in the event loop until cancelled, which also ends the thread."""
        loop = threading.get_ident()
        threading.Thread(target=self._watch_beats, args=(loop,), name="heartbeat", daemon=True).start()
        try:
            while True:
                self._beats += 1
                await trio.sleep(self.beat_s)
        finally:
            self._has_ended.set()

    def _watch_beats(self, loop: int) -> None:
        last_beats, silent = 0, 0
        while not self._has_ended.wait(self.beat_s):
            if self._beats == last_beats:
                silent += 1
                if silent == self.missed:
                    self.log.error("event-loop-stalled", since_s=silent * self.beat_s, where=_stack_of(loop))
                continue
            if silent >= self.missed:
                self.log.warning("event-loop-recovered", stalled_s=silent * self.beat_s)
            last_beats, silent = self._beats, 0


def _stack_of(thread: int) -> str:
    frame = sys._current_frames().get(thread)
    return "" if frame is None else "".join(traceback.format_stack(frame))
