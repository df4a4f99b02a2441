"""The producer of ledger rows to a Kafka topic of the same cluster, on a connection of its own."""

import time
from datetime import timedelta
from typing import Final
from zlib import crc32

import attrs
import trio
from kio.schema.errors import ErrorCode
from kio.schema.produce.v3.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.types import TopicName
from kio.static.primitive import Records, i16, i32, i32Timedelta

from proxy.cluster.topology import NO_LEADER, Topology
from proxy.convert.codecs import compress
from proxy.errors import BrokerUnavailable, ProxyError
from proxy.net.io.logs import Log
from proxy.net.observability.backlog import RowBatch, RowSink
from proxy.net.upstream.access import Access
from proxy.net.upstream.brokers import BrokerConnection, open_broker
from proxy.net.upstream.topology import TopologyService
from proxy.telemetry.rows import Loss
from proxy.wire.produce import keyed_records
from proxy.wire.records import Codec, batch_of

__all__ = ["LedgerCluster", "LedgerProducer"]

_CLIENT_ID: Final = "sidefetch-ledger"
_EVERY_S: Final = 1.0
_BATCH_BYTES: Final = 512 * 1024
"""Half of the brokers' default limit (message.max.bytes), although brokers compare the compressed size."""
_ALL_IN_SYNC: Final = i16(-1)
_ACKED_WITHIN: Final = timedelta(seconds=10)
_ANSWER_S: Final = 15.0
_FIRST_WAIT_S: Final = 0.25
_LONGEST_WAIT_S: Final = 8.0
_COMPLAIN_EVERY_S: Final = 30.0
_TOO_LARGE: Final = (ErrorCode.message_too_large, ErrorCode.record_list_too_large)


@attrs.frozen
class LedgerCluster:
    """The cluster with the ledger's topic: its topology, and the TLS, login and timeout for connecting to it."""

    topology: TopologyService
    access: Access
    connect_timeout_s: float


class LedgerProducer:
    """A producer that writes the backlog's rows to one partition of a topic, in order, one batch at a time.

    The partition is chosen by the hash of the process id, which is the key of all rows. A batch whose
    acknowledgement did not arrive is produced again, so rows may occur twice.
    """

    def __init__(self, topic: str, proxy_id: str, cluster: LedgerCluster, sink: RowSink, log: Log) -> None:
        self._topic = topic
        self._key = proxy_id.encode()
        self._proxy_id = proxy_id
        self._cluster = cluster
        self._sink = sink
        self._backlog = sink.backlog
        self._log = log
        self._connection: BrokerConnection | None = None
        self._partition = 0
        self._most_bytes = _BATCH_BYTES
        self._ending = trio.Event()
        self._ended = trio.Event()
        self._scope = trio.CancelScope(shield=True)

    async def run(self) -> None:
        """Produce the rows of the backlog until ``finish`` is called and the backlog is empty.

        Cancelling the caller's scope does not end it, since rows arrive until the last client has left; cancelling
        ``finish`` does. After an error the rows stay in the backlog, and it tries again after a growing pause.
        """
        try:
            with self._scope:
                await self._run()
        finally:
            self._disconnect()
            self._ended.set()

    async def finish(self) -> None:
        """End ``run``: wait until it has produced the remaining rows.

        If this call is cancelled, ``run`` stops at once. The topology is refreshed meanwhile, because no other task
        does that at the end of the process.
        """
        self._ending.set()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._cluster.topology.run)  # no other task updates it any more
                await self._ended.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._scope.cancel()

    async def _run(self) -> None:
        failures = 0
        while self._backlog or not self._ending.is_set():
            await self._pause(failures)
            try:
                while self._backlog:
                    await self._produce_some()
                failures = 0
            except Exception as wrong:
                failures += 1
                self._disconnect()
                self._handle_failure(wrong)

    async def _pause(self, failures: int) -> None:
        """Wait 1 s for rows to gather or, after *failures* in a row, longer, up to 8 s; ``finish`` shortens it."""
        longer_s = min(_FIRST_WAIT_S * 2 ** min(failures, 10), _LONGEST_WAIT_S)
        with trio.move_on_after(longer_s if failures else _EVERY_S):
            await self._ending.wait()
            if failures:
                await trio.sleep(_FIRST_WAIT_S)

    async def _produce_some(self) -> None:
        batch = self._backlog.take(self._most_bytes)
        try:
            error = await self._produce(batch)
        except BaseException:
            self._backlog.give_back(batch)
            raise
        if error in _TOO_LARGE:
            self._make_smaller(batch)
        elif error != ErrorCode.none:
            self._backlog.give_back(batch)
            raise BrokerUnavailable(f"{self._topic}: {error.name}")

    def _make_smaller(self, batch: RowBatch) -> None:
        """Halve the batch size after the topic rejected a batch; a single row that is too large is lost."""
        if len(batch.lines) > 1:
            self._most_bytes = max(self._most_bytes // 2, 1)
        else:
            for line in batch.lines:
                self._backlog.lose(Loss(self._proxy_id, "too-large", line.seq, line.seq))
            batch = attrs.evolve(batch, lines=())
        self._backlog.give_back(batch)

    async def _produce(self, batch: RowBatch) -> ErrorCode:
        """Produce *batch* and return the error code of the response.

        Raises: BrokerUnavailable, BrokerProtocolError: the batch may or may not be written.
        """
        connection, partition = await self._connect_to_leader()
        request = await trio.to_thread.run_sync(self._make_request, batch, partition)
        with trio.move_on_after(_ANSWER_S):
            answer = await connection.send_request(request)
            error: ErrorCode = answer.responses[0].partition_responses[0].error_code
            return error
        raise BrokerUnavailable(f"{connection.frames.peer}: no response within {_ANSWER_S:g} s")

    def _make_request(self, batch: RowBatch, partition: int) -> ProduceRequest:
        now_us = time.time_ns() // 1000
        losses = [self._sink.lost_line(loss, now_us, None) for loss in batch.losses]
        values = [data[:-1] for data in (*losses, *(line.data for line in batch.lines))]
        records = compress(Codec.GZIP, keyed_records(self._key, values), magic=2, is_brief=False)
        data = batch_of(records, Codec.GZIP, len(values), now_us // 1000, now_us // 1000)
        produced = PartitionProduceData(index=i32(partition), records=Records(data))
        return ProduceRequest(
            acks=_ALL_IN_SYNC,
            timeout=i32Timedelta.parse(_ACKED_WITHIN),
            topic_data=(TopicProduceData(name=TopicName(self._topic), partition_data=(produced,)),),
        )

    async def _connect_to_leader(self) -> tuple[BrokerConnection, int]:
        """Return a connection to the leader of the key's partition, and the partition.

        Both are kept until a failure.
        """
        if self._connection is not None:
            return self._connection, self._partition
        topology = await self._refresh_topology()
        info = topology.topic(self._topic)
        if info is None or info.error or not info.leaders:
            why = ErrorCode(info.error).name if info is not None else "not known"
            raise BrokerUnavailable(f"{self._topic}: {why}")
        self._partition = crc32(self._key) % len(info.leaders)
        leader = info.leaders[self._partition].node_id
        if leader == NO_LEADER:
            raise BrokerUnavailable(f"{self._topic}-{self._partition} has no leader")
        address, timeout_s = self._cluster.topology.address_of(leader), self._cluster.connect_timeout_s
        with trio.move_on_after(timeout_s):
            self._connection = await open_broker(
                address, client_id=_CLIENT_ID, connect_timeout_s=timeout_s, access=self._cluster.access
            )
            return self._connection, self._partition
        raise BrokerUnavailable(f"{address}: no handshake within {timeout_s:g} s")

    async def _refresh_topology(self) -> Topology:
        topologies: list[Topology] = []
        has_come = trio.Event()

        def take(topology: Topology) -> None:
            topologies.append(topology)
            has_come.set()

        self._cluster.topology.request_refresh(frozenset({self._topic}), take)
        await has_come.wait()
        return topologies[-1]

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.frames.close()

    def _handle_failure(self, wrong: Exception) -> None:
        if not isinstance(wrong, ProxyError):
            self._sink.on_bug(wrong)
            return
        self._log.warning(
            "ledger-produce-failed",
            every_s=_COMPLAIN_EVERY_S,
            topic=self._topic,
            reason=wrong,
            waiting_bytes=self._backlog.size_bytes,
            lost_rows=self._backlog.lost_rows,
            remedy="create the topic and permit writes to it: rows wait in memory up to the limit of ledger-memory",
        )
