"""The telemetry of one client connection: event records go to the observers, the log and the counters."""

from collections.abc import Callable
from typing import Final

import attrs

from proxy.cluster.topology import Topology
from proxy.convert.down import DownConversion
from proxy.events import (
    ClientRecord,
    ConversionRecord,
    DamageRecord,
    ExchangeRecord,
    FetchRecord,
    Record,
    StalledFetchRecord,
    TruncationRecord,
)
from proxy.net.downstream.exchanges import ExchangeRecords
from proxy.net.observability.observers import ConnectionInfo
from proxy.net.observability.traffic import count_fetch
from proxy.net.services import Services
from proxy.wire.frames import Chunks

__all__ = ["ConnectionRecorder"]

_LOG_EVERY_S: Final = 5.0


class ConnectionRecorder:
    """The receiver of all event records (``proxy.events``) of one client connection.

    ``observe`` passes a record at once to the observers (ledger, metrics, traces, status page), and logs damaged
    records, truncated logs and stalled fetches. The record of a client fetch passes through ``exchanges`` first,
    which completes it when the response has been sent.
    """

    def __init__(self, connection: ConnectionInfo, services: Services, topology: Callable[[], Topology]) -> None:
        """Create the recorder.

        Args:
            connection:      the labels of the connection; ``observe`` keeps its topology and client id up to date.
            topology: returns the present topology, as the client's principal may see it.
        """
        self._connection = connection
        self._services = services
        self._topology = topology
        self.exchanges = ExchangeRecords(self.observe)

    def observe(self, record: Record) -> None:
        self._connection.topology = self._topology()
        if isinstance(record, ExchangeRecord | ClientRecord):
            self._connection.client_id = record.client_id
        self._services.observers.observe(self._connection, record)
        if isinstance(record, FetchRecord):
            count_fetch(self._services.traffic, record, self._connection.topology, self._services.fetch_config.rack)
        if isinstance(record, DamageRecord):
            self._services.log.warning(
                "records-damaged",
                every_s=_LOG_EVERY_S,
                per=(record.topic, record.partition),
                node=record.node,
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                reason=record.why,
            )
        elif isinstance(record, TruncationRecord):
            self._log_problem("log-truncated", record)
        elif isinstance(record, StalledFetchRecord):
            self._log_problem("fetch-stalled", record)

    def _log_problem(self, event: str, record: TruncationRecord | StalledFetchRecord) -> None:
        """Log *event* with the fields of *record*, at most once in 5 s for each broker."""
        self._services.log.warning(event, every_s=_LOG_EVERY_S, per=record.node, **attrs.asdict(record))

    def record_conversion(self, chunks: Chunks, cpu_s: float) -> None:
        """Record a down-conversion of one partition's records whose last chunk has just been produced for sending.

        Emits a ``ConversionRecord``, and adds it to the counters and to the record of the client fetch. *chunks*
        must be a ``DownConversion``; *cpu_s* is the CPU time in seconds of producing its chunks.
        """
        assert isinstance(chunks, DownConversion)
        counts, totals = chunks.counts, self._services.counts
        record = ConversionRecord(
            chunks.magic,
            counts.messages,
            counts.source_bytes,
            counts.out_bytes - counts.padding_bytes,
            counts.padding_bytes,
            counts.cpu_us + round(cpu_s * 1e6),
        )
        totals["converted_records"] += record.records
        totals["converted_bytes"] += record.in_bytes
        totals["padding_bytes"] += record.padding_bytes
        self.observe(record)
        self.exchanges.add_conversion(record)
