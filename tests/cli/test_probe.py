"""Asking a cluster, with brokers made up."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import attrs
import pytest
import trio
from kio.schema.describe_configs.v1.request import DescribeConfigsRequest
from kio.schema.describe_configs.v1.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v4.request import MetadataRequest
from kio.schema.metadata.v4.response import MetadataResponse, MetadataResponseBroker
from kio.schema.types import BrokerId
from kio.static.primitive import i32, i32Timedelta
from trio.testing import MockClock

from proxy.cli.cluster_info import BrokerInfo, ClusterInfo
from proxy.cli.probe import probe_cluster
from proxy.config import Address, UpstreamConfig
from proxy.errors import BrokerUnavailable

VERSIONS: Mapping[int, tuple[int, int]] = {1: (4, 18), 3: (0, 13)}


def selector_of(value: str | None, *, hidden: bool = False) -> tuple[DescribeConfigsResourceResult, ...]:
    """Return the ``replica.selector.class`` that ``probe`` reads from a broker."""
    reported = DescribeConfigsResourceResult(
        name="replica.selector.class", value=value, read_only=True, is_sensitive=hidden, synonyms=()
    )
    return (reported,)


@attrs.frozen
class ProbedBroker:
    """A broker that answers Metadata and DescribeConfigs, at once or never."""

    cluster: "Cluster"
    address: Address

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        return VERSIONS if self.cluster.configs is None else {**VERSIONS, 32: (1, 4)}

    def described(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        (resource,) = request.resources
        assert (resource.resource_type, f"b{resource.resource_name}") == (4, self.address.host)
        assert resource.configuration_keys == ("replica.selector.class",)
        if isinstance(self.cluster.configs, Exception):
            raise self.cluster.configs
        result = DescribeConfigsResult(
            error_code=ErrorCode.none if self.cluster.configs else ErrorCode.cluster_authorization_failed,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=self.cluster.configs or (),
        )
        return DescribeConfigsResponse(throttle_time=i32Timedelta.parse(timedelta()), results=(result,))

    async def send_request(self, request: Any) -> Any:
        if isinstance(request, DescribeConfigsRequest):
            return self.described(request)
        assert isinstance(request, MetadataRequest)
        assert request.topics == ()
        assert not request.allow_auto_topic_creation
        if self.cluster.is_mute:
            await trio.sleep_forever()
        return MetadataResponse(
            throttle_time=i32Timedelta.parse(timedelta()),
            brokers=tuple(
                MetadataResponseBroker(
                    node_id=BrokerId(n), host=f"b{n}", port=i32(9092), rack="a" if n == 1 else None
                )
                for n in (1, 2)
            ),
            cluster_id="cluster",
            controller_id=BrokerId(1),
            topics=(),
        )


@attrs.frozen
class Cluster:
    """Brokers at some addresses; the others refuse."""

    up: frozenset[str]
    is_mute: bool = False
    configs: tuple[DescribeConfigsResourceResult, ...] | Exception | None = None
    """The configuration of each broker; an exception if it is denied, None if DescribeConfigs is not served."""

    @asynccontextmanager
    async def dial(
        self, address: Address, *, client_id: str, connect_timeout_s: float
    ) -> AsyncIterator[ProbedBroker]:
        assert client_id == "sidefetch-check"
        assert connect_timeout_s == 3
        await trio.lowlevel.checkpoint()
        if str(address) not in self.up:
            raise BrokerUnavailable(f"{address}: connection refused")
        yield ProbedBroker(self, address)


def upstream(*servers: str) -> UpstreamConfig:
    return UpstreamConfig(bootstrap_servers=tuple(map(Address.parse, servers)), connect_timeout_s=3)


async def test_first_reachable_server_lists_brokers_and_each_is_probed() -> None:
    cluster = Cluster(frozenset({"boot2:1", "b1:9092"}))

    seen = await probe_cluster(upstream("boot1:1", "boot2:1", "boot3:1"), cluster.dial)

    assert seen == ClusterInfo(
        "cluster",
        Address("boot2", 1),
        (
            BrokerInfo(1, Address("b1", 9092), "a", VERSIONS),
            BrokerInfo(2, Address("b2", 9092), None, problem="connection refused"),
        ),
    )


async def test_unreachable_servers_are_listed_with_reasons() -> None:
    assert await probe_cluster(upstream("x:1", "y:2"), Cluster(frozenset()).dial) == [
        "x:1: connection refused",
        "y:2: connection refused",
    ]


async def test_connected_but_silent_server_times_out(
    autojump_clock: MockClock,  # noqa: ARG001
) -> None:
    assert await probe_cluster(upstream("x:1"), Cluster(frozenset({"x:1"}), is_mute=True).dial) == [
        "x:1: connected, but no response within 6 s"
    ]


@pytest.mark.parametrize(
    ("configs", "selector_class"),
    [
        (selector_of("com.example.Selector"), "com.example.Selector"),
        (selector_of(None), ""),
        (selector_of(None, hidden=True), None),
        ((), None),
        (BrokerUnavailable("it hangs up"), None),
        (None, None),
    ],
    ids=["one", "none", "hidden", "denied", "hangs up", "not served"],
)
async def test_each_broker_is_queried_for_its_replica_selector(
    configs: tuple[DescribeConfigsResourceResult, ...] | Exception | None, selector_class: str | None
) -> None:
    cluster = Cluster(frozenset({"b1:9092", "b2:9092"}), configs=configs)

    seen = await probe_cluster(upstream("b1:9092"), cluster.dial)

    assert isinstance(seen, ClusterInfo)
    assert [(each.selector_class, each.problem) for each in seen.brokers] == [(selector_class, "")] * 2
