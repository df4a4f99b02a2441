"""The writer of the ledger's files, in a thread of its own: no task waits for the disk."""

import threading
import time
from pathlib import Path
from typing import Final

from proxy.net.io.logs import Log
from proxy.net.observability.backlog import RowSink
from proxy.net.observability.ledger_folder import FileLimits, LedgerFolder
from proxy.telemetry.rows import Loss

__all__ = ["LedgerFiles"]

_EVERY_S: Final = 0.5
_LONGEST_WAIT_S: Final = 8.0
_AT_ONCE_BYTES: Final = 1024 * 1024
_COMPLAIN_EVERY_S: Final = 30.0


class LedgerFiles:
    """A thread that moves rows from the backlog to the ledger's files every half second.

    Rows whose write failed stay in the backlog, and the pause until the next attempt grows to 8 s.
    """

    def __init__(self, folder: Path, proxy_id: str, limits: FileLimits, sink: RowSink, log: Log) -> None:
        self._path = folder
        self._folder = LedgerFolder(folder, proxy_id, limits, time.monotonic)
        self._sink = sink
        self._backlog = sink.backlog
        self._log = log
        self._ending = threading.Event()
        self._has_recovered = False
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Have the thread write the remaining rows, finish the open file and end; wait for it, without trio.

        Return after at most *timeout_s* seconds, even if the disk does not respond and the thread still runs.
        """
        self._ending.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        wait_s = _EVERY_S
        while True:
            is_last = self._ending.wait(wait_s)
            try:
                self._write_all()
                if is_last:
                    self._folder.finish()
                wait_s = _EVERY_S
            except Exception as wrong:
                wait_s = min(wait_s * 2, _LONGEST_WAIT_S)
                self._handle_failure(wrong)
            if is_last:
                return

    def _write_all(self) -> None:
        if not self._has_recovered:
            for name in self._folder.recover(self._sink.lost_line):
                self._log.info("ledger-recovered", file=name)
            self._has_recovered = True
        loss = self._folder.take_vanished()
        if loss is not None:
            self._backlog.lose(loss)
        self._folder.rotate()
        while self._backlog:
            self._write_some()
            self._folder.rotate()

    def _write_some(self) -> None:
        for loss in self._folder.make_room():
            self._backlog.lose(loss)
        batch = self._backlog.take(min(self._folder.room, _AT_ONCE_BYTES))
        try:
            self._folder.write(batch.losses, batch.lines, self._encode_loss)
        except BaseException:
            self._backlog.give_back(batch)
            raise

    def _encode_loss(self, loss: Loss) -> bytes:
        return self._sink.lost_line(loss, time.time_ns() // 1000, None)

    def _handle_failure(self, wrong: Exception) -> None:
        if not isinstance(wrong, OSError):
            self._sink.on_bug(wrong)
            return
        self._log.warning(
            "ledger-write-failed",
            every_s=_COMPLAIN_EVERY_S,
            folder=self._path,
            reason=wrong.strerror or wrong,
            waiting_bytes=self._backlog.size_bytes,
            lost_rows=self._backlog.lost_rows,
            remedy="free disk space, or restore the folder: rows wait in memory up to the limit of ledger-memory",
        )
