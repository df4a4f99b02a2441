"""The creation of ledger rows from event records; ``ledger`` defines the rows, and their writer numbers them."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

import attrs

from proxy.cluster.topology import Broker, BrokerId, Topology
from proxy.events import ClientRecord, ExchangeRecord, FetchRecord, Record, SessionRecord, SourceShare
from proxy.telemetry.ledger import SCHEMA, Row

__all__ = ["UNNUMBERED", "Loss", "RowMaker", "RowSubject", "bounded_sources", "topology_rows"]

UNNUMBERED: Final = -1
"""The ``seq`` (sequence number) of a row until the writer assigns one."""
_MOST_SOURCES: Final = 64
_OTHERS: Final = -1
"""The node id that stands for all nodes beyond the limit."""


class RowSubject(Protocol):
    """The client connection, or the shared log cache, of a ledger row: its client id, topology and trace id."""

    @property
    def connection_id(self) -> int | None:
        """The number of the client connection; None for a log cache that clients share."""

    @property
    def client_id(self) -> str | None: ...
    @property
    def topology(self) -> Topology: ...
    @property
    def trace_id(self) -> str | None: ...


@attrs.frozen
class Loss:
    """A range of lost ledger rows: their process, their first and last sequence number, and the reason."""

    proxy_id: str
    """The id of the process that numbered the rows."""
    reason: str
    """The reason, as defined for the column ``reason`` of ``lost`` rows."""
    first: int
    """The first sequence number (``seq``)."""
    last: int
    """The last sequence number, included."""

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@attrs.frozen
class RowMaker:
    """The factory of all ledger rows of one process."""

    proxy_id: str
    reader_rack: str | None
    """The rack of this process; None if it is unknown."""
    wall_us: Callable[[float], int]
    """Converts seconds of the process's clock to microseconds since 1970."""

    def make_row(
        self, subject: RowSubject, record: Record, now_s: float, *, software: str | None = None, weight: float = 1.0
    ) -> Row | None:
        """Return the ledger row for *record*, not yet numbered; None if the ledger has no rows for its type.

        Args: subject:  the client connection, or the shared log cache, of the record.
              now_s:    the time of the record, in seconds of the process's clock.
              software: the client's library and version, if known.
              weight:   the number of records that this one stands for: 1 / the sampling rate.
        """
        match record:
            case ExchangeRecord():
                return self._exchange(subject, record, software, weight)
            case FetchRecord():
                return self._fetch(subject, record, weight)
            case SessionRecord():
                return self._session(subject, record, now_s)
            case ClientRecord():
                return self._client(subject, record, now_s)
            case _:
                return None

    def make_lost_row(self, loss: Loss, at_us: int, cluster_id: str | None) -> Row:
        """Return the row of type ``lost`` that reports *loss*; its ``seq`` is that of the last lost row.

        Args: at_us: the time for the row, in microseconds since 1970.
        """
        row = _common("lost", at_us, cluster_id, loss.proxy_id)
        row["seq"] = loss.last
        return row | {"reason": loss.reason, "count": loss.count, "seq_first": loss.first, "seq_last": loss.last}

    def _common(self, record: str, at_us: int, subject: RowSubject, weight: float = 1.0) -> Row:
        return _common(record, at_us, subject.topology.cluster_id, self.proxy_id, weight)

    def _exchange(self, subject: RowSubject, record: ExchangeRecord, software: str | None, weight: float) -> Row:
        waited = dict(record.waited_us)
        converted = record.converted
        direct_response_bytes = record.response_bytes
        if converted is not None:
            direct_response_bytes += record.source_bytes - record.delivered_bytes
        return self._common("exchange", self.wall_us(record.ended_s), subject, weight) | {
            "exchanges": 1,
            "connection_id": subject.connection_id,
            "client_id": record.client_id,
            "software": software,
            "fetch_version": record.version,
            "client_session_id": record.session_id,
            "client_session_epoch": record.session_epoch,
            "node_id": record.node,
            "reader_rack": self.reader_rack,
            "wanted": record.wanted,
            "named": record.named,
            "answered": record.answered,
            "with_data": record.with_data,
            "request_bytes": record.request_bytes,
            "response_bytes": record.response_bytes,
            "direct_request_bytes": record.request_bytes,
            "direct_response_bytes": direct_response_bytes,
            "direct_partition_looks": record.wanted,
            "source_bytes": record.source_bytes,
            "delivered_bytes": record.delivered_bytes,
            "held_bytes": record.held_bytes,
            "converted_in_bytes": converted.in_bytes if converted else 0,
            "converted_out_bytes": converted.out_bytes if converted else 0,
            "converted_records": converted.records if converted else 0,
            "padding_bytes": converted.padding_bytes if converted else 0,
            "conversion_cpu_us": converted.cpu_us if converted else 0,
            "converted_to": converted.to_magic if converted else None,
            "sources": bounded_sources(_source(share, subject.topology) for share in record.sources),
            "total_us": sum(waited.values()),
            "poll_us": waited.get("poll", 0),
            "broker_us": waited.get("broker", 0),
            "budget_us": waited.get("budget", 0),
            "convert_us": waited.get("convert", 0),
            "throttle_us": waited.get("throttle", 0),
            "write_us": waited.get("write", 0),
            "errors": [{"code": code, "n": n} for code, n in record.errors],
            "trace_id": subject.trace_id,
        }

    def _fetch(self, subject: RowSubject, record: FetchRecord, weight: float) -> Row:
        return self._common("fetch", self.wall_us(record.answered_s), subject, weight) | {
            "fetches": 1,
            "connection_id": subject.connection_id,
            "fetcher_id": record.fetcher_id,
            "fetcher": record.fetcher,
            "node": record.node,
            "rack": _rack(subject.topology, record.node),
            "version": record.version,
            "kind": record.kind,
            "session_id": record.session_id,
            "epoch_first": record.epoch,
            "epoch_last": record.epoch,
            "size": record.size,
            "named": record.named,
            "forgotten": record.forgotten,
            "answered": record.answered,
            "request_bytes": record.request_bytes,
            "response_bytes": record.response_bytes,
            "record_bytes": record.record_bytes,
            "dropped_bytes": record.dropped_bytes,
            "broker_us": round((record.answered_s - record.sent_s) * 1_000_000),
            "throttle_us": record.throttle_ms * 1000,
            "error": record.error,
            "client_fetches": record.client_fetches,
        }

    def _session(self, subject: RowSubject, record: SessionRecord, now_s: float) -> Row:
        return self._common("session", self.wall_us(now_s), subject) | {
            "side": record.side,
            "node": record.node,
            "fetcher_id": record.fetcher_id or None,
            "session_id": record.session_id,
            "event": record.event,
            "reason": record.reason or None,
            "partitions": record.partitions,
            "created_us": self._since_1970(record.created_s),
            "last_used_us": self._since_1970(record.used_s),
        }

    def _client(self, subject: RowSubject, record: ClientRecord, now_s: float) -> Row:
        return self._common("client", self.wall_us(now_s), subject) | {
            "connection_id": subject.connection_id,
            "client_id": record.client_id,
            "software": record.software or None,
            "apis": [
                {
                    "key": used.key,
                    "version": used.version,
                    "upgraded_to": used.upgraded_to,
                    "requests": used.requests,
                    "bytes": used.request_bytes,
                }
                for used in record.apis
            ],
        }

    def _since_1970(self, at_s: float | None) -> int | None:
        return None if at_s is None else self.wall_us(at_s)


def topology_rows(metadata: Any, proxy_id: str, at_us: int) -> Iterator[Row]:
    """Yield a ``topology`` row for each partition in a Metadata response, sorted by topic and partition number.

    Args: metadata: a response entity of the library kio, of v4 or later.
          at_us:    the time for the rows, in microseconds since 1970.
    """
    racks = {broker.node_id: broker.rack or None for broker in metadata.brokers}
    for topic in sorted(metadata.topics, key=lambda topic: str(topic.name)):
        for partition in sorted(topic.partitions, key=lambda partition: int(partition.partition_index)):
            in_sync = set(partition.isr_nodes)
            yield _common("topology", at_us, metadata.cluster_id, proxy_id) | {
                "topic": str(topic.name),
                "partition": int(partition.partition_index),
                "leader": int(partition.leader_id),
                "replicas": [
                    {"node": int(node), "rack": racks.get(node), "in_sync": int(node in in_sync)}
                    for node in partition.replica_nodes
                ],
            }


def bounded_sources(sources: Iterable[Row]) -> list[Row]:
    """Return *sources*, items of the column ``sources`` of a client fetch, bounded to 64 and one for all others.

    The 64 with the most bytes (then partitions) are kept. The item for the others has their sums, no topic, and the
    node id -1.
    """
    each = list(sources)
    if len(each) <= _MOST_SOURCES:
        return each
    each.sort(key=lambda source: (source["node"] != _OTHERS, source["bytes"], source["wanted"]), reverse=True)
    kept, rest = each[:_MOST_SOURCES], each[_MOST_SOURCES:]
    sums = {name: sum(source[name] for source in rest) for name in ("wanted", "bytes", "request_share_bytes")}
    nobody = {"topic": None, "node": _OTHERS, "rack": None, "leader_node": _OTHERS, "leader_rack": None}
    return [*kept, nobody | sums]


def _common(record: str, at_us: int, cluster_id: str | None, proxy_id: str, weight: float = 1.0) -> Row:
    return {
        "record": record,
        "schema": SCHEMA,
        "at_us": at_us,
        "first_at_us": at_us,
        "cluster_id": cluster_id,
        "proxy_id": proxy_id,
        "seq": UNNUMBERED,
        "weight": weight,
    }


def _source(share: SourceShare, topology: Topology) -> Row:
    return {
        "topic": share.topic or None,
        "node": share.node,
        "rack": _rack(topology, share.node),
        "leader_node": share.leader,
        "leader_rack": _rack(topology, share.leader),
        "wanted": share.wanted,
        "bytes": share.record_bytes,
        "request_share_bytes": share.request_bytes,
    }


def _rack(topology: Topology, node: int) -> str | None:
    broker: Broker | None = topology.brokers.get(BrokerId(node))
    return None if broker is None else broker.rack or None
