"""APIs whose v0 has the layout of v1: v1 only declares that its clients observe the throttle time themselves."""

from typing import Final

from proxy.convert.versions.upgrade import Upgrade, read_throttle_at_the_end, read_throttle_in_front, same_layout
from proxy.wire.apis import ApiKey

__all__ = ["UPGRADES"]

UPGRADES: Final = tuple(
    Upgrade(api, key, 0, 1, "nothing", "nothing", same_layout, throttle_ms)
    for api, key, throttle_ms in (
        ("AlterReplicaLogDirs", ApiKey.ALTER_REPLICA_LOG_DIRS, read_throttle_in_front),
        ("DescribeLogDirs", ApiKey.DESCRIBE_LOG_DIRS, read_throttle_in_front),
        ("CreateDelegationToken", ApiKey.CREATE_DELEGATION_TOKEN, read_throttle_at_the_end),
        ("RenewDelegationToken", ApiKey.RENEW_DELEGATION_TOKEN, read_throttle_at_the_end),
        ("ExpireDelegationToken", ApiKey.EXPIRE_DELEGATION_TOKEN, read_throttle_at_the_end),
        ("DescribeDelegationToken", ApiKey.DESCRIBE_DELEGATION_TOKEN, read_throttle_at_the_end),
    )
)
