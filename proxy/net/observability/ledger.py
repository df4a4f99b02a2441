"""The ledger: rows of JSON about fetches, sessions and connections, written to a folder, a topic, or both.

    record --> sampled? --> row --> run of empty ones? --> seq --> backlog of each sink --> file, topic

All steps before the sinks run in the task that makes the record, and take microseconds. ``telemetry/LEDGER.md``
describes the rows.
"""

import json
import os
import socket
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, Literal

import attrs
import trio

from proxy.config import LedgerConfig
from proxy.errors import ConfigError
from proxy.events import ClientRecord, ExchangeRecord, FetchRecord, Record
from proxy.net.io.logs import Log
from proxy.net.observability.backlog import Backlog, LedgerLine, RowSink
from proxy.net.observability.ledger_files import LedgerFiles
from proxy.net.observability.ledger_folder import FileLimits
from proxy.net.observability.ledger_topic import LedgerCluster, LedgerProducer
from proxy.net.observability.observers import ConnectionInfo, epoch_us
from proxy.telemetry.folding import RowFolding
from proxy.telemetry.ledger import Row
from proxy.telemetry.rows import Loss, RowMaker
from proxy.telemetry.sampling import Sampler

__all__ = ["LedgerWriter", "encode_row", "process_id"]

_COMPLAIN_EVERY_S: Final = 30.0
_FOLDS_S: Final = 1.0
"""The interval in seconds between checks for runs that have lasted long enough."""
_FINISH_S: Final = 3.0
"""The longest time in seconds for writing the rest at the end."""
_encode = json.JSONEncoder(separators=(",", ":")).encode


@attrs.define
class _ConnectionRows:
    """State of one connection or shared log cache for its rows."""

    numbers: Counter[str] = attrs.field(factory=Counter)
    """The number of exchanges and of fetches, by kind."""
    software: str | None = None


class LedgerWriter:
    """An observer that makes ledger rows of the records that it gets, and queues them for the files and the topic.

    Exchange and fetch records are sampled, and runs of rows without data are folded into one row. ``running``
    writes the queued rows in the background, so that an observer call neither waits nor raises.
    """

    wants_exchanges: Final = True

    def __init__(
        self,
        config: LedgerConfig,
        rack: str | None,
        log: Log,
        counts: Counter[str],
        cluster: LedgerCluster | None = None,
    ) -> None:
        """Create a writer; *counts* gets the number of ``bugs``, and *cluster* is needed for a topic.

        Raises: ConfigError: the folder cannot be created or written to.
        """
        self._log = log
        self._counts = counts
        self.proxy_id = process_id()
        self._rows = RowMaker(self.proxy_id, rack, epoch_us)
        self._sampler = Sampler(config.sample, self.proxy_id)
        self._folds = RowFolding()
        self._connections: dict[int, _ConnectionRows] = {}
        self._cluster_id: str | None = None
        self._next = 0
        self._backlogs: list[Backlog] = []
        self._files: LedgerFiles | None = None
        self._topic: LedgerProducer | None = None
        if config.folder is not None:
            limits = FileLimits(config.file_bytes, config.file_age_s, config.max_bytes)
            folder = _create_folder(config.folder)
            self._files = LedgerFiles(folder, self.proxy_id, limits, self._add_sink(config), log)
        if config.topic is not None and cluster is not None:
            self._topic = LedgerProducer(config.topic, self.proxy_id, cluster, self._add_sink(config), log)

    def observe(self, connection: ConnectionInfo, record: Record, /) -> None:
        state = self._connections.setdefault(connection.number, _ConnectionRows())
        kind = _sampled_kind(record)
        if kind is not None:
            state.numbers[kind] += 1
            if not self._sampler.picks(connection.number, kind, state.numbers[kind]):
                return
        if isinstance(record, ClientRecord):
            state.software = record.software or None
        self._cluster_id = connection.topology.cluster_id
        now_s, weight = trio.current_time(), self._sampler.weight
        row = self._rows.make_row(connection, record, now_s, software=state.software, weight=weight)
        if row is not None:
            self._write(self._folds.add(row, connection.number))

    def end_connection(self, connection: ConnectionInfo, /) -> None:
        self._write(self._folds.take_runs_of(connection.number))
        self._connections.pop(connection.number, None)

    @property
    def rows(self) -> int:
        """The number of rows that were queued since the start, lost rows included."""
        return self._next

    @property
    def lost_rows(self) -> int:
        """The number of rows lost since the start; a row that both the files and the topic lose counts twice."""
        return sum(backlog.lost_rows for backlog in self._backlogs)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write the queued rows while the ``async with`` block runs; at its end write the rest, in at most 3 s."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._end_runs)
            if self._files is not None:
                self._files.start()
            if self._topic is not None:
                nursery.start_soon(self._topic.run)
            try:
                yield
            finally:
                self._write(self._folds.finish())
                await self._finish()
                nursery.cancel_scope.cancel()
        left = sum(bool(backlog) for backlog in self._backlogs)
        self._log.info("ledger-closed", rows=self._next, lost_rows=self.lost_rows, sinks_left_behind=left)

    async def _finish(self) -> None:
        with trio.move_on_after(_FINISH_S, shield=True):
            async with trio.open_nursery() as nursery:
                if self._files is not None:
                    stop = partial(self._files.stop, _FINISH_S)
                    nursery.start_soon(partial(trio.to_thread.run_sync, stop, abandon_on_cancel=True))
                if self._topic is not None:
                    nursery.start_soon(self._topic.finish)

    async def _end_runs(self) -> None:
        while True:
            await trio.sleep(_FOLDS_S)
            self._write(self._folds.take_old(epoch_us(trio.current_time())))

    def _add_sink(self, config: LedgerConfig) -> RowSink:
        self._backlogs.append(Backlog(config.memory_bytes, self.proxy_id))
        return RowSink(self._backlogs[-1], self._lost_line, self._log_bug)

    def _log_bug(self, bug: Exception) -> None:
        self._counts["bugs"] += 1
        trace = "".join(traceback.format_exception(bug))
        self._log.error("unhandled-exception", every_s=_COMPLAIN_EVERY_S, where="ledger", trace=trace)

    def _write(self, rows: Iterable[Row]) -> None:
        for row in rows:
            row["seq"] = self._next
            line = LedgerLine(self._next, encode_row(row))
            self._next += 1
            for backlog in self._backlogs:
                backlog.put(line)

    def _lost_line(self, loss: Loss, at_us: int, cluster_id: str | None) -> bytes:
        return encode_row(self._rows.make_lost_row(loss, at_us, cluster_id or self._cluster_id))


def process_id() -> str:
    """Return a new id for the rows of this process, unique among all processes: host name and random number."""
    return f"{socket.gethostname()}-{os.urandom(4).hex()}"


def encode_row(row: Row) -> bytes:
    """Return *row* as one line of JSON, with the newline."""
    return _encode(row).encode() + b"\n"


def _sampled_kind(record: Record) -> Literal["exchange", "fetch"] | None:
    match record:
        case ExchangeRecord():
            return "exchange"
        case FetchRecord():
            return "fetch"
        case _:
            return None


def _create_folder(path: str) -> Path:
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as wrong:
        raise ConfigError(f"ledger: {path} cannot be created ({wrong.strerror}); accepted: a folder") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"ledger: {path} cannot be written to; accepted: a writable folder")
    return folder
