"""The APIs that clients may use: the values of the option ``allowed-apis``."""

from types import MappingProxyType
from typing import Final, Self

import attrs
from kio.schema.index import api_key_map

__all__ = ["ALL_APIS", "API_NAMES", "AllowedApis"]

API_NAMES: Final = MappingProxyType({int(key): name.title().replace("_", "") for key, name in api_key_map.items()})
"""Kafka's names of the APIs, such as ``ListOffsets``, by API key."""
_KEYS: Final = MappingProxyType({name: key for key, name in API_NAMES.items()})
_ALWAYS: Final = ("Metadata", "SaslHandshake", "ApiVersions", "SaslAuthenticate")
"""The APIs that each client uses to connect; they are always allowed."""
_SETS: Final = MappingProxyType(
    {
        "all": tuple(_KEYS),
        "clients": (
            *("Produce", "InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"),
            *("Fetch", "ListOffsets", "OffsetForLeaderEpoch", "OffsetCommit", "OffsetFetch", "FindCoordinator"),
            *("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat"),
            *("ShareGroupHeartbeat", "ShareFetch", "ShareAcknowledge", "StreamsGroupHeartbeat"),
            *("GetTelemetrySubscriptions", "PushTelemetry"),
        ),
        "describe": (
            *("DescribeCluster", "DescribeTopicPartitions", "DescribeConfigs", "ListConfigResources"),
            *(
                "ListGroups",
                "DescribeGroups",
                "ConsumerGroupDescribe",
                "ShareGroupDescribe",
                "StreamsGroupDescribe",
            ),
            *("DescribeShareGroupOffsets", "DescribeProducers", "ListTransactions", "DescribeTransactions"),
            *("DescribeAcls", "DescribeClientQuotas", "DescribeUserScramCredentials", "DescribeDelegationToken"),
            *("DescribeLogDirs", "DescribeQuorum", "ListPartitionReassignments"),
        ),
        "topics": ("CreateTopics", "DeleteTopics", "CreatePartitions", "DeleteRecords"),
    }
)


@attrs.frozen
class AllowedApis:
    """The APIs that clients may use, as a list of sets and of single APIs; by default all.

    Clients may always use Metadata, ApiVersions, SaslHandshake and SaslAuthenticate.
    """

    names: tuple[str, ...] = ("all",)
    """Sets (``all``, ``clients``, ``describe``, ``topics``), and Kafka's names of APIs."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the APIs in *text*, names separated by commas.

        Raises: ValueError: *text* is empty, or has a name that is neither that of a set nor that of an API.
        """
        names = tuple(part.strip() for part in text.split(","))
        for name in names:
            if name not in _SETS and name not in _KEYS:
                raise ValueError(
                    f"{name!r} is neither {', '.join(_SETS)} nor the name of an API such as ListOffsets"
                )
        return cls(names)

    @property
    def keys(self) -> frozenset[int]:
        """The API keys, those of APIs that clients may always use included."""
        apis = [*_ALWAYS, *(api for name in self.names for api in _SETS.get(name, (name,)))]
        return frozenset(_KEYS[api] for api in apis)

    def __str__(self) -> str:
        return ",".join(self.names)


ALL_APIS: Final = AllowedApis()
"""All APIs of which Sidefetch knows the responses."""
