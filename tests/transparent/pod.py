"""A host with room for a sidecar and an old client, and a cluster that is not on it."""

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from proxy.kube.redirect import LISTEN_PORT, SPARED_UIDS
from tests.clients.conversation import Client, ClientFailed
from tests.kafka.admin import Admin, unique
from tests.kafka.cluster import KafkaCluster
from tests.kafka.records import Record
from tests.sidefetch import Sidefetch
from tests.transparent.namespaces import Host, as_user, network

__all__ = [
    "FAR",
    "NEAR",
    "OLD",
    "OTHER_FAR",
    "RECORDS",
    "SERVICE",
    "SIDEFETCH",
    "SILENCE_S",
    "Pod",
    "pod_and_cluster",
]

NEAR: Final = ("10.77.0.1", "fd77::1")
FAR: Final = ("10.77.0.2", "fd77::2")
OTHER_FAR: Final = "10.77.0.3"
"""An address of the same host."""
SERVICE: Final = "10.96.0.10"
"""An address of no host: the cluster's host lets a broker answer its connections, as Kubernetes does for a
Service."""
SERVICE_RULES: Final = f"""\
table ip service {{{{
    chain in {{{{
        type nat hook prerouting priority -100; policy accept;
        ip daddr {SERVICE} tcp dport 9092 dnat to {{broker}}
    }}}}
}}}}
"""
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
OLD: Final = "kafka-python-1.4.7-as-0.9"
"""Kafka 4 turns it away."""
SIDEFETCH: Final = (sys.executable, "-m", "proxy")
RECORDS: Final = 60
SILENCE_S: Final = 6.0
"""The time after which a client that can read at all has begun: it takes a second."""
SIDEFETCH_UID: Final = SPARED_UIDS[0]


@attrs.frozen
class Pod:
    """A host with a client and room for a sidecar, and the cluster that is not on it."""

    host: Host
    far: Host
    cluster: KafkaCluster
    topic: str
    """Three partitions, led by all three brokers."""

    @property
    def ports(self) -> str:
        """The ports of the brokers' listeners, and of the Service."""
        brokers = self.cluster.brokers.values()
        ports = [port for each in brokers for port in (each.port, *each.more_ports.values())]
        return ",".join(map(str, [9092, *ports]))

    @property
    def addresses(self) -> set[str]:
        """The advertised addresses of the brokers."""
        return {each.address for each in self.cluster.brokers.values()}

    def redirect(self, action: str, *flags: str) -> None:
        self.host.run(*SIDEFETCH, "redirect", action, *flags)

    @contextlib.contextmanager
    def redirected(self, *flags: str) -> Iterator[None]:
        """Rules for the brokers' ports, while in context."""
        self.redirect("install", "--ports", self.ports, *flags)
        try:
            yield
        finally:
            self.redirect("remove")

    @contextlib.contextmanager
    def sidecar(
        self, bootstrap: str = "", *, uid: int = SIDEFETCH_UID, options: Sequence[str] = ()
    ) -> Iterator[Sidefetch]:
        """Sidefetch on this host, as its image's user."""
        where = ["--transparent", f"127.0.0.1:{LISTEN_PORT},[::1]:{LISTEN_PORT}", *options]
        servers = bootstrap or self.cluster.bootstrap
        with self.host.inside(), Sidefetch(servers, options=where, by=as_user(uid)) as sidecar:
            yield sidecar

    def read(self, bootstrap: str, topic: str = "", count: int = RECORDS, client: str = OLD) -> list[Record]:
        with self.host.inside(), Client(client) as program:
            return program.read(bootstrap, topic or self.topic, range(3), count)

    def reads_nothing(self, bootstrap: str) -> bool:
        with self.host.inside(), Client(OLD) as program:
            task = program.begin("read", bootstrap, self.topic, partitions=[0, 1, 2], count=1)
            try:
                task.wait(SILENCE_S)
            except ClientFailed:
                return True
            return not task.records


@contextlib.contextmanager
def pod_and_cluster() -> Iterator[Pod]:
    """With Kafka 4 on a host of its own."""
    near = (f"{NEAR[0]}/24", f"{NEAR[1]}/64")
    far = (f"{FAR[0]}/24", f"{OTHER_FAR}/24", f"{FAR[1]}/64")
    with contextlib.ExitStack() as stack:
        host, far_host = stack.enter_context(network(near, far))
        host.run("ip", "route", "add", "10.96.0.0/16", "via", FAR[0])
        hosts = {"PLAINTEXT": FAR[0], "SIX": f"[{FAR[1]}]", "LOGIN": FAR[0]}
        plain = [f"{name}:PLAINTEXT" for name in ("PLAINTEXT", "TAPPED", "INTERNAL", "CONTROLLER", "SIX")]
        settings = {
            "listener.security.protocol.map": ",".join([*plain, "LOGIN:SASL_PLAINTEXT"]),
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": f"{PLAIN} required user_alice=secret;",
        }
        with far_host.inside():
            kafka = KafkaCluster("4.3.1", listeners=["SIX", "LOGIN"], hosts=hosts, settings=settings)
            stack.enter_context(kafka)
            admin = Admin(kafka)
            topic = admin.create_topic(unique("transparent"), 3)
            admin.produce_known(topic, RECORDS, 3)
        far_host.run("nft", "-f", "-", input_text=SERVICE_RULES.format(broker=kafka.brokers[1].address))
        yield Pod(host, far_host, kafka, topic)
