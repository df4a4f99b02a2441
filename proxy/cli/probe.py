"""Queries to a cluster about its brokers and topics, for ``check`` and ``topology``."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Final, Protocol

import attrs
import trio
from kio.schema.describe_configs.v1.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v1.response import DescribeConfigsResponse
from kio.schema.metadata.v4.request import MetadataRequest
from kio.schema.metadata.v4.response import MetadataResponse
from kio.static.primitive import i8

from proxy.cli.cluster_info import BrokerInfo, ClusterInfo
from proxy.config import Address, UpstreamConfig
from proxy.errors import BrokerUnavailable, ProxyError

__all__ = ["Dial", "ProbeConnection", "probe_cluster", "read_api_versions", "read_topics"]

_CLIENT_ID: Final = "sidefetch-check"
_DESCRIBE_CONFIGS: Final = 32
_A_BROKER: Final = i8(4)
"""The resource type of brokers in DescribeConfigs."""
_SELECTOR_CLASS: Final = "replica.selector.class"
_UNKNOWN: Final = -1
_AT_ONCE: Final = 16
"""Most connections at the same time; the other brokers of a large cluster are queried later."""


class ProbeConnection(Protocol):
    """A connection to one broker, as the queries in this module use it."""

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """The lowest and highest version of each API that the broker supports, by API key."""

    async def send_request(self, request: Any, /) -> Any:
        """Send *request*, a request entity of the library kio, and return the broker's response entity."""


class Dial(Protocol):
    """A function that connects to one broker: ``proxy.net.upstream.brokers.dial``, or a replacement in tests."""

    def __call__(
        self, address: Address, *, client_id: str, connect_timeout_s: float
    ) -> AbstractAsyncContextManager[ProbeConnection]:
        """Return a context manager for a connection, which is closed at the end of the context."""


async def probe_cluster(upstream: UpstreamConfig, dial: Dial) -> ClusterInfo | list[str]:
    """Request metadata from the first bootstrap server that answers, then query every broker that it names.

    Returns: the cluster; a broker that was not reached has the reason in ``problem``. If no bootstrap server
        answers, one line for each of them with the reason.
    """
    found = await _first_answer(upstream, dial, topics=())
    if isinstance(found, list):
        return found
    through, answer = found
    brokers = tuple(BrokerInfo(b.node_id, Address(b.host, b.port), b.rack or None) for b in answer.brokers)
    return ClusterInfo(answer.cluster_id, through, await _inspect_each(brokers, upstream.connect_timeout_s, dial))


async def read_topics(upstream: UpstreamConfig, dial: Dial) -> MetadataResponse | list[str]:
    """Request the metadata of all topics from the first bootstrap server that answers.

    Returns: the response, with the brokers and the topics that this login may see. If no bootstrap server answers,
        one line for each of them with the reason.
    """
    found = await _first_answer(upstream, dial, topics=None)
    return found if isinstance(found, list) else found[1]


async def read_api_versions(upstream: UpstreamConfig, dial: Dial) -> list[BrokerInfo]:
    """Request the API versions of each bootstrap server, for which no login is needed.

    Returns: one item for each server, in order, with the node id -1 (unknown). If a server was not reached,
        ``problem`` is the reason.
    """
    seen = []
    for address in upstream.bootstrap_servers:
        server = BrokerInfo(_UNKNOWN, address, None)
        try:
            with _time_limit(upstream.connect_timeout_s):
                async with dial(
                    address, client_id=_CLIENT_ID, connect_timeout_s=upstream.connect_timeout_s
                ) as connection:
                    seen.append(attrs.evolve(server, versions=dict(connection.versions)))
        except (ProxyError, OSError) as error:
            seen.append(attrs.evolve(server, problem=_message_without(error, address)))
    return seen


async def _first_answer(
    upstream: UpstreamConfig, dial: Dial, *, topics: tuple[()] | None
) -> tuple[Address, MetadataResponse] | list[str]:
    """Return the bootstrap server that answers first, and its metadata of *topics* (None: all topics).

    If none answers, return a line with the reason for each.
    """
    # Every broker that Sidefetch can read supports version 4, which has all necessary fields.
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    failures, timeout_s = [], upstream.connect_timeout_s
    for address in upstream.bootstrap_servers:
        try:
            with _time_limit(timeout_s):
                async with dial(address, client_id=_CLIENT_ID, connect_timeout_s=timeout_s) as connection:
                    return address, await connection.send_request(request)
        except (ProxyError, OSError) as error:
            failures.append(f"{address}: {_message_without(error, address)}")
    return failures


async def _inspect_each(brokers: tuple[BrokerInfo, ...], timeout_s: float, dial: Dial) -> tuple[BrokerInfo, ...]:
    seen: dict[int, BrokerInfo] = {}
    limit = trio.CapacityLimiter(_AT_ONCE)

    async def inspect(broker: BrokerInfo) -> None:
        async with limit:
            try:
                with _time_limit(timeout_s):
                    async with dial(
                        broker.address, client_id=_CLIENT_ID, connect_timeout_s=timeout_s
                    ) as connection:
                        seen[broker.node] = attrs.evolve(
                            broker,
                            versions=dict(connection.versions),
                            selector_class=await _selector_class(connection, broker.node),
                        )
            except (ProxyError, OSError) as error:
                seen[broker.node] = attrs.evolve(broker, problem=_message_without(error, broker.address))

    async with trio.open_nursery() as nursery:
        for broker in brokers:
            nursery.start_soon(inspect, broker)
    return tuple(seen[broker.node] for broker in brokers)


async def _selector_class(connection: ProbeConnection, node: int) -> str | None:
    """Return ``replica.selector.class`` of the broker, ``""`` if it is not set.

    None means that the broker does not support the request, refuses it, or hides the value.
    """
    first, last = connection.versions.get(_DESCRIBE_CONFIGS, (0, -1))
    if not first <= DescribeConfigsRequest.__version__ <= last:
        return None
    resource = DescribeConfigsResource(
        resource_type=_A_BROKER, resource_name=str(node), configuration_keys=(_SELECTOR_CLASS,)
    )
    try:
        answer: DescribeConfigsResponse = await connection.send_request(
            DescribeConfigsRequest(resources=(resource,))
        )
    except ProxyError:
        return None
    configs = [config for result in answer.results for config in result.configs if config.name == _SELECTOR_CLASS]
    return next((config.value or "" for config in configs if not config.is_sensitive), None)


@contextmanager
def _time_limit(timeout_s: float) -> Iterator[None]:
    """Limit the time for the connection and the response, so that a silent port does not block ``check``.

    Raises: BrokerUnavailable: the block took more than twice *timeout_s*.
    """
    try:
        with trio.fail_after(2 * timeout_s):
            yield
    except trio.TooSlowError:
        raise BrokerUnavailable(f"connected, but no response within {2 * timeout_s:g} s") from None


def _message_without(error: Exception, address: Address) -> str:
    """Return the message of *error* without *address*, which the caller prints as well."""
    return str(error).removeprefix(f"{address}: ") or type(error).__name__
