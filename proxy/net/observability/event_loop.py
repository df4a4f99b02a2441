"""The turns of the event loop: their longest duration, the stack at which it is blocked, and those of threads.

A blocked loop answers no probe, so that Kubernetes restarts the process; afterwards the cause cannot be found.
"""

import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

import attrs
import trio

from proxy.net.io.logs import Log

__all__ = ["Heartbeat", "LoopTurns", "limit_thread_turns"]

_WINDOW_S: Final = 60.0

_SWITCH_S: Final = 0.001
"""The time for which a thread may compute while the event loop is ready to run.

Measured with a thread that computes all the time: an echo over a socket takes 5 ms, at most 21 ms, with Python's
5 ms; with this, it takes 1 ms, at most 4 ms. The thread is as fast."""
_BEAT_S: Final = 1.0
_MISSED: Final = 5
"""The number of missed beats. A pause of the whole process does not count: the counting thread pauses, too."""


def limit_thread_turns() -> None:
    """Have threads that compute, as for large requests, let the event loop run within 1 ms instead of 5 ms.

    The loop needs a turn after each system call, so that it would wait several times for one response.
    """
    sys.setswitchinterval(_SWITCH_S)


@attrs.define(eq=False)
class LoopTurns(trio.abc.Instrument):
    """The duration of the longest recent turn of the event loop.

    A turn lasts from the moment at which the loop knows which sockets and timers are ready until it asks again; all
    tasks that were woken run in it. Nobody is served sooner than at its end. Use: pass it to
    ``trio.lowlevel.add_instrument``.
    """

    _clock: Callable[[], float] = time.monotonic
    _began_s: float | None = attrs.field(default=None, init=False)
    _window_s: float = attrs.field(default=float("-inf"), init=False)
    """The start of the present minute."""
    _present_s: float = attrs.field(default=0.0, init=False)
    """The longest turn of the present minute."""
    _last_s: float = attrs.field(default=0.0, init=False)
    """The longest turn of the minute before."""

    @property
    def longest_s(self) -> float:
        """The longest turn of the last one to two minutes, in seconds."""
        self._move_window(self._clock())
        return max(self._present_s, self._last_s)

    def after_io_wait(self, timeout: float) -> None:  # noqa: ARG002
        self._began_s = self._clock()

    def before_io_wait(self, timeout: float) -> None:  # noqa: ARG002
        if self._began_s is not None:
            now_s = self._clock()
            self._move_window(now_s)
            self._present_s = max(self._present_s, now_s - self._began_s)

    def _move_window(self, now_s: float) -> None:
        passed_s = now_s - self._window_s
        if passed_s >= _WINDOW_S:
            self._last_s = self._present_s if passed_s < 2 * _WINDOW_S else 0.0
            self._window_s, self._present_s = now_s, 0.0


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
