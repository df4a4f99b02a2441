"""Settings of a cluster with an authorizer, whose clients without a name have every right that no ACL speaks of."""

from collections.abc import Mapping
from typing import Final

__all__ = ["GUARDED"]

_LOGIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_BROKERS_LOGIN: Final = f'{_LOGIN} username="broker" password="known" user_broker="known";'

GUARDED: Final[Mapping[str, object]] = {
    # Brokers have a name, and all rights.
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:broker",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TAPPED:PLAINTEXT"
    ",INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.internal.plain.sasl.jaas.config": _BROKERS_LOGIN,
    "listener.name.controller.plain.sasl.jaas.config": _BROKERS_LOGIN,
}
"""For ``KafkaCluster``."""
