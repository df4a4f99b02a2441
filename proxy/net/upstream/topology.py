"""The topology of the cluster (brokers, topics, leaders), refreshed by Metadata requests for all connections."""

import dataclasses
import random
import sys
import traceback
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Any, Final

import attrs
import trio
from cachetools import TTLCache
from kio.index import load_request_schema
from kio.schema.types import TopicName
from kio.static.protocol import RequestPayload

from proxy.cluster.topology import NO_TOPIC_ID, BrokerId, Topology
from proxy.config import Address, UpstreamConfig
from proxy.errors import BrokerProtocolError, BrokerUnavailable, ProxyError
from proxy.net.io.logs import Log
from proxy.net.upstream.access import OPEN, Access
from proxy.net.upstream.brokers import BrokerConnection, open_broker
from proxy.wire.apis import ApiKey
from proxy.wire.fetch import Topic

__all__ = ["TopologyCallback", "TopologyService"]

TopologyCallback = Callable[[Topology], None]
"""A callback with the topology after a refresh."""

_CLIENT_ID: Final = "sidefetch"
_PROBE_S: Final = 5.0
"""The least interval between requests that only check whether a broker answers, in seconds."""
_FRESH_S: Final = 0.5
"""Topics refreshed within this time are not requested again, however many connections report them as stale."""
_TOPICS: Final = 100_000
_ATTEMPTS: Final = 2
"""The number of failures after which a request is divided, while brokers answer others."""
_BATCH_TOPICS: Final = 1_000
_BATCH_BYTES: Final = 1024 * 1024
"""The most topics of one request, and bytes of their names: a broker closes the connection at a larger request than
it accepts."""
_QUICK_PARTITIONS: Final = 500
"""The most topics and partitions of metadata that are read in the event loop: it takes about 1 ms."""
_ANSWER_S: Final = 10.0
_RETRY_S: Final = 0.1
_LONGEST_RETRY_S: Final = 5.0
_COMPLAIN_EVERY_S: Final = 30.0
_FAILED_TOPICS: Final = 10_000
"""The most unknown names and ids to remember; clients may request any number."""
_MAX_METADATA_VERSION: Final = 13
_OLDEST_METADATA_VERSION: Final = 4
"""The first version that does not create the requested topics."""
_IDS_FIELD_VERSION: Final = 10
_IDS_VERSION: Final = 12


@attrs.frozen
class _Waiting:
    """A call of ``request_refresh`` that waits for its refresh."""

    topics: frozenset[Topic]
    callback: TopologyCallback


class TopologyService:
    """The current topology of one cluster, and its refreshes: on a schedule and on request, one at a time.

    ``run`` sends all Metadata requests; at most one is in flight for all calls of ``request_refresh``.
    Topics are requested when a client first needs them, so that the cost follows the topics that are read.
    """

    def __init__(
        self,
        config: UpstreamConfig,
        log: Log,
        on_refreshed: TopologyCallback = lambda _: None,
        access: Access = OPEN,
        addresses: dict[BrokerId, Address] | None = None,
    ) -> None:
        """Create the service; ``run`` starts the requests.

        Args: on_refreshed: called with the topology after each refresh.
              access:    TLS and login for the connection to a broker.
              addresses: the addresses of brokers; may be shared with other services.
        """
        self._config = config
        self._log = log
        self._on_refreshed = on_refreshed
        self._access = access
        self._waiting: list[_Waiting] = []
        self._wake = trio.Event()
        self._fresh: TTLCache[Topic, None] = TTLCache(_TOPICS, _FRESH_S, timer=trio.current_time)
        self.addresses: dict[BrokerId, Address] = {} if addresses is None else addresses
        self._connection: BrokerConnection | None = None
        self._is_answered = False
        self._answered_s = -float("inf")
        self._must_probe = False
        self.topology = Topology()
        self.known = trio.Event()
        """Set once a broker has answered the first request."""

    def request_refresh(self, topics: frozenset[Topic], callback: TopologyCallback) -> None:
        """Schedule a refresh of *topics*, names or ids, and return at once; *callback* gets the topology later.

        ``run`` calls *callback* in its own task: after the refresh or, if all *topics* were refreshed in the last
        0.5 s, without another one.
        """
        self._waiting.append(_Waiting(topics, callback))
        self._wake.set()

    async def wait_for_first_response(self, timeout_s: float) -> None:
        """Wait until a broker has answered the first Metadata request; return at once if that is long ago.

        New client connections wait here. They are not read meanwhile, so it is not noticed if the client leaves.

        Raises: BrokerUnavailable: no broker has answered within *timeout_s* seconds.
        """
        with trio.move_on_after(timeout_s):
            await self.known.wait()
        if not self.known.is_set():
            raise BrokerUnavailable(f"no broker has answered within {timeout_s:g} s")

    async def refresh_brokers(self) -> None:
        """Refresh the list of brokers, and wait until a broker has answered, without a time limit."""
        answered = trio.Event()
        self._must_probe = True
        self.request_refresh(frozenset(), lambda _: answered.set())
        await answered.wait()

    def record_address(self, node_id: int, host: str, port: int) -> None:
        """Record the address of broker *node_id*, which a broker's response contains, for ``address_of``."""
        self.addresses[BrokerId(node_id)] = Address(host, port)

    def address_of(self, node_id: BrokerId) -> Address:
        """Return the last recorded address of broker *node_id*. Raises: BrokerUnavailable: there is none."""
        try:
            return self.addresses[node_id]
        except KeyError:
            raise BrokerUnavailable(f"broker {node_id} has no known address") from None

    def is_reachable(self) -> bool:
        """Return whether a broker answered the last Metadata request; False before the first response.

        If the last response is more than 5 s old, another request is scheduled, whose result later calls return.
        """
        if trio.current_time() - self._answered_s > _PROBE_S:
            self._must_probe = True
            self._wake.set()
        return self._is_answered

    async def run(self) -> None:
        """Send Metadata requests until cancelled: on a schedule (metadata-max-age), and as other methods need them.

        A failed request is repeated, with other brokers and a growing pause, until a broker answers.
        """
        try:
            due_s = trio.current_time()
            while True:
                await self._sleep_until(due_s)
                scheduled = trio.current_time() >= due_s
                await self._refresh_for_waiting(scheduled=scheduled)
                if scheduled:
                    due_s = trio.current_time() + self._config.metadata_max_age_s
        finally:
            self._disconnect()

    async def _refresh_for_waiting(self, *, scheduled: bool) -> None:
        """Refresh the topics of all waiting calls, and all known topics if *scheduled*; then call the callbacks."""
        batch, self._waiting = self._waiting, []
        stale = {topic for each in batch for topic in each.topics if topic not in self._fresh}
        if scheduled:
            stale |= {info.name or topic for topic, info in self.topology.topics.items() if not info.error}
        await trio.lowlevel.checkpoint()  # a client may have named thousands of topics
        must_probe, self._must_probe = self._must_probe, False
        if scheduled or stale or must_probe or not self.known.is_set():
            await self._refresh(stale)
            self.known.set()
        for each in batch:
            each.callback(self.topology)

    async def _sleep_until(self, due_s: float) -> None:
        if not self._waiting and not self._must_probe:
            self._wake = trio.Event()
            with trio.move_on_at(due_s):
                await self._wake.wait()

    async def _refresh(self, topics: Collection[Topic]) -> None:
        """Request metadata of *topics* until a broker answers; update the topology and the addresses of brokers."""
        names = [topic for topic in topics if isinstance(topic, str)]
        # The id that stands for no topic would fail the whole request, also for other clients.
        ids = [topic for topic in topics if not isinstance(topic, str) and topic != NO_TOPIC_ID]
        # Separately: if a request has any id, brokers ignore the names.
        batches = [*_batches(names), *_batches(ids)]
        await trio.lowlevel.checkpoint()
        for batch in batches or [[]]:
            for metadata in await self._request_batch(batch):
                self.topology = await _add_metadata(self.topology, metadata)
            for topic in batch:
                self._fresh[topic] = None
        self.topology = _drop_failed_topics(self.topology, topics)
        for broker in self.topology.brokers.values():
            self.record_address(broker.node_id, broker.host, broker.port)
        requested = len(names) + len(ids)
        self._log.debug("metadata-refreshed", brokers=len(self.topology.brokers), topics=requested)
        self._on_refreshed(self.topology)

    async def _request_batch(self, topics: Sequence[Topic]) -> list[Any]:
        """Request metadata of *topics* until a broker answers, and return the responses.

        If brokers answer other requests but twice not this one, both halves are requested, and a single topic is
        skipped: no topic must keep others from being refreshed.
        """
        if not topics:
            return [await self._request_until_answered()]
        for _ in range(_ATTEMPTS):
            answer = await self._try_request(topics)
            if answer is not None:
                return [answer]
            answer = await self._request_until_answered()
        if len(topics) == 1:
            return [answer]
        half = len(topics) // 2
        return [*await self._request_batch(topics[:half]), *await self._request_batch(topics[half:])]

    async def _request_until_answered(self) -> Any:
        """Request only the brokers, with growing pauses, until one answers."""
        retry_s = _RETRY_S
        while (answer := await self._try_request([])) is None:
            await trio.sleep(retry_s * random.uniform(0.5, 1))
            retry_s = min(retry_s * 2, _LONGEST_RETRY_S)
        return answer

    async def _try_request(self, topics: Sequence[Topic]) -> Any | None:
        """Request metadata of *topics* from each broker until one answers; None if none does."""
        try:
            answer = await self._request_metadata(topics)
        except Exception as wrong:  # an unexpected error must not end the process
            self._is_answered = False
            self._disconnect()
            if isinstance(wrong, ProxyError):
                self._log.warning("no-broker-reachable", every_s=_COMPLAIN_EVERY_S, reason=wrong)
            else:
                trace = "".join(traceback.format_exception(wrong))
                self._log.error("unhandled-exception", every_s=_COMPLAIN_EVERY_S, trace=trace)
            return None
        self._is_answered, self._answered_s = True, trio.current_time()
        return answer

    async def _request_metadata(self, topics: Sequence[Topic]) -> Any:
        connection = self._connection
        if connection is not None:
            try:
                return await self._request_from(connection, topics)
            except ProxyError:
                self._disconnect()  # it was idle for long, or its broker has stopped; others are tried
        wrong: ProxyError | None = None
        for address in self._candidates():
            try:
                self._connection = await self._open(address)
                return await self._request_from(self._connection, topics)
            except ProxyError as failed:
                wrong = failed
                self._disconnect()
        assert wrong is not None
        raise wrong

    async def _open(self, address: Address) -> BrokerConnection:
        timeout_s = self._config.connect_timeout_s
        with trio.move_on_after(timeout_s):
            return await open_broker(
                address, client_id=_CLIENT_ID, connect_timeout_s=timeout_s, access=self._access
            )
        raise BrokerProtocolError(f"{address}: no handshake within {timeout_s:g} s")

    async def _request_from(self, connection: BrokerConnection, topics: Sequence[Topic]) -> Any:
        served = connection.versions.get(ApiKey.METADATA)
        version = min(served.last, _MAX_METADATA_VERSION) if served is not None else 0
        if version < _OLDEST_METADATA_VERSION:
            raise BrokerProtocolError(f"{connection.frames.peer} serves Metadata up to v{version}, v4 is needed")
        with trio.move_on_after(_ANSWER_S):
            metadata = await connection.send_request(_metadata_request(version, topics))
            if metadata.brokers:
                return metadata
            raise BrokerUnavailable(f"{connection.frames.peer} knows no brokers yet")
        raise BrokerProtocolError(f"{connection.frames.peer}: no answer to Metadata within {_ANSWER_S:g} s")

    def _candidates(self) -> list[Address]:
        """Return the addresses to try: those of the known brokers in random order, then the bootstrap servers."""
        live = [Address(each.host, each.port) for each in self.topology.brokers.values()]
        random.shuffle(live)
        return list(dict.fromkeys([*live, *self._config.bootstrap_servers]))

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.frames.close()


async def _add_metadata(topology: Topology, metadata: Any) -> Topology:
    """Return *topology* updated by *metadata*, a response of now; that of many partitions is read in a thread."""
    update = partial(topology.with_metadata, metadata, trio.current_time())
    partitions = sum(len(topic.partitions) for topic in metadata.topics)
    if len(metadata.topics) + partitions > _QUICK_PARTITIONS:
        return await trio.to_thread.run_sync(update, abandon_on_cancel=True)
    return update()


def _batches(topics: Sequence[Topic]) -> Iterator[Sequence[Topic]]:
    """Divide *topics* into those of single requests, which are limited in number and bytes."""
    begin = size_bytes = 0
    for index, topic in enumerate(topics):
        size_bytes += len(topic)
        if index - begin >= _BATCH_TOPICS or size_bytes > _BATCH_BYTES:
            yield topics[begin:index]
            begin, size_bytes = index, len(topic)
    if begin < len(topics):
        yield topics[begin:]


def _drop_failed_topics(topology: Topology, requested: Collection[Topic]) -> Topology:
    """Return *topology*; if too many topics have an error, without those, except for the topics in *requested*."""
    failed = [topic for topic, info in topology.topics.items() if info.error]
    if len(failed) <= _FAILED_TOPICS:
        return topology
    gone = set(failed).difference(requested)
    return attrs.evolve(topology, topics={t: info for t, info in topology.topics.items() if t not in gone})


def _metadata_request(version: int, topics: Sequence[Topic]) -> RequestPayload:
    """Return a Metadata request for all brokers and for *topics*, names or ids, that does not create a topic."""
    request: Any = load_request_schema(ApiKey.METADATA, version)
    topic: Any = sys.modules[request.__module__].MetadataRequestTopic

    def make_topic(each: Topic) -> Any:
        if isinstance(each, bytes):
            return topic(topic_id=uuid.UUID(bytes=each), name=None)
        name = TopicName(each)
        return topic(name=name) if version < _IDS_FIELD_VERSION else topic(topic_id=None, name=name)

    # Brokers before v12 cannot be asked by id, and give clients no ids.
    requestable = [each for each in topics if isinstance(each, str) or version >= _IDS_VERSION]
    optional = {
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    fields = {field.name for field in dataclasses.fields(request)}
    return request(  # type: ignore[no-any-return]  # the schema is chosen at run time
        topics=tuple(map(make_topic, requestable)),
        allow_auto_topic_creation=False,
        **{name: value for name, value in optional.items() if name in fields},
    )
