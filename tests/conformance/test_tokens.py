"""SaslHandshake v0 and raw tokens, through a client connection to a real broker that requires a login.

A single connection is tested: the test passes it the broker's address.
"""

import base64
import hashlib
import hmac
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from io import StringIO

import pytest
import trio
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it does export them
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from proxy.cluster.topology import BrokerId
from proxy.config import LogConfig
from proxy.demo.client import KafkaConnection, connect
from proxy.errors import BrokerUnavailable
from proxy.fetch.fetch_config import FetchConfig
from proxy.net.downstream.acceptor import AcceptedClient
from proxy.net.downstream.client import ClientConnection
from proxy.net.io.fetch_memory import FetchMemory
from proxy.net.io.logs import Log
from proxy.net.io.memory import Budget
from proxy.net.io.sockets import FrameSocket
from proxy.net.observability.observers import Observers
from proxy.net.reload import ReloadableSettings
from proxy.net.services import Services
from proxy.net.upstream.log_caches import LogCaches
from proxy.net.upstream.topology import TopologyService
from proxy.relay.traffic import Traffic
from proxy.wire.frames import with_size
from tests.kafka.admin import Admin
from tests.kafka.cluster import KafkaCluster
from tests.net.proxied import configured

pytestmark = pytest.mark.kafka

_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
CREDENTIALS = {
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,TAPPED:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
    ),
    "listener.name.tapped.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.tapped.plain.sasl.jaas.config": f'{_PLAIN} required user_alice="plain secret";',
    "listener.name.tapped.scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
}
USER, PLAIN_SECRET, SCRAM_SECRET = "alice", b"plain secret", b"scram secret"
UNSUPPORTED_MECHANISM = 33


@pytest.fixture(scope="module", params=["4.3.1", pytest.param("3.9.2", marks=pytest.mark.long)])
def kafka(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    with KafkaCluster(request.param, settings=CREDENTIALS) as cluster:
        client = AdminClient({"bootstrap.servers": cluster.bootstrap})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        credential = UserScramCredentialUpsertion(USER, info, SCRAM_SECRET)
        for done in client.alter_user_scram_credentials([credential]).values():
            done.result()
        Admin(cluster).coordinator("g")
        yield cluster


@asynccontextmanager
async def through(kafka: KafkaCluster) -> AsyncIterator[KafkaConnection]:
    """A client's connection by way of Sidefetch to the listener of broker 1 that asks for credentials."""
    config = configured(kafka.bootstrap)
    log = Log(LogConfig().format, "debug", StringIO())
    topology = TopologyService(config.upstream, log)
    broker = kafka.brokers[1]
    topology.record_address(1, broker.host, broker.behind_tap_port)
    budget = Budget(config.upstream.memory_bytes, log)
    reading = FetchConfig(0, 1 << 20, 5)
    caches = LogCaches(reading, log)
    services = Services(
        topology,
        5,
        reading,
        budget,
        Observers(),
        log,
        ReloadableSettings(config, log),
        Counter(),
        0,
        Traffic(),
        caches,
        FetchMemory(1 << 20, log),
    )

    async def serve(stream: trio.SocketStream) -> None:
        client = FrameSocket(stream, 1 << 20)
        with client:
            try:
                await ClientConnection(client, AcceptedClient(BrokerId(1)), _place, services).run()
            except* BrokerUnavailable:
                pass  # it hangs up on who is refused

    async with trio.open_nursery() as nursery:
        await nursery.start(caches.run)
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        async with connect(f"127.0.0.1:{listener.socket.getsockname()[1]}") as client:
            yield client
        nursery.cancel_scope.cancel()


def _place(node_id: int, host: str, port: int) -> tuple[str, int]:  # noqa: ARG001
    return "127.0.0.1", 9000 + node_id


async def token(client: KafkaConnection, said: bytes) -> bytes | None:
    await client.send_frame(with_size(said))
    return await client.receive_frame()


async def is_served(client: KafkaConnection) -> None:
    """Whether the client is who it says: only then are other requests answered."""
    reported = await client.call("metadata", 1, {"topics": []})
    assert {(each.node_id, each.port) for each in reported.brokers} == {(n, 9000 + n) for n in (1, 2, 3)}


async def handshake(client: KafkaConnection, mechanism: str) -> int:
    await client.send_frame(_handshake(mechanism))
    answer = await client.receive_frame()
    assert answer is not None
    return int.from_bytes(answer[4:6])


def _handshake(mechanism: str) -> bytes:
    name = mechanism.encode()
    header = (17).to_bytes(2) + bytes(2) + (1).to_bytes(4) + b"\xff\xff"
    return with_size(header + len(name).to_bytes(2) + name)


async def test_plain_takes_one_token(kafka: KafkaCluster) -> None:
    async with through(kafka) as client:
        assert await handshake(client, "PLAIN") == 0
        assert await token(client, b"\0" + USER.encode() + b"\0" + PLAIN_SECRET) == b""
        await is_served(client)


async def test_failed_login_closes_connection(kafka: KafkaCluster) -> None:
    async with through(kafka) as client:
        assert await handshake(client, "PLAIN") == 0
        assert await token(client, b"\0" + USER.encode() + b"\0wrong") is None


async def test_a_mechanism_that_is_not_there_is_refused_and_another_may_be_tried(kafka: KafkaCluster) -> None:
    """Check on another connection, since brokers close a connection after a refusal."""
    async with through(kafka) as client:
        assert await handshake(client, "GSSAPI") == UNSUPPORTED_MECHANISM
    async with through(kafka) as client:
        assert await handshake(client, "PLAIN") == 0
        assert await token(client, b"\0" + USER.encode() + b"\0" + PLAIN_SECRET) == b""
        await is_served(client)


async def test_scram_takes_two_tokens(kafka: KafkaCluster) -> None:
    async with through(kafka) as client:
        assert await handshake(client, "SCRAM-SHA-256") == 0
        mine = f"n={USER},r=client"
        challenge = await token(client, f"n,,{mine}".encode())
        assert challenge is not None
        final, signature = _scram(mine, challenge.decode())
        assert await token(client, final) == b"v=" + base64.b64encode(signature)
        await is_served(client)


async def test_api_versions_request_is_allowed_before_login(kafka: KafkaCluster) -> None:
    async with through(kafka) as client:
        await client.call("api_versions", 0, {})
        assert await handshake(client, "PLAIN") == 0
        assert await token(client, b"\0" + USER.encode() + b"\0" + PLAIN_SECRET) == b""
        await is_served(client)


def _scram(mine: str, challenge: str) -> tuple[bytes, bytes]:
    """Return the client's last message and the expected response (RFC 5802)."""
    said = dict(part.split("=", 1) for part in challenge.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", SCRAM_SECRET, base64.b64decode(said["s"]), int(said["i"]))
    without_proof = f"c=biws,r={said['r']}"
    signed = f"{mine},{challenge},{without_proof}".encode()
    key = hmac.digest(salted, b"Client Key", "sha256")
    proof = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proven = bytes(a ^ b for a, b in zip(key, proof, strict=True))
    signature = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
    return f"{without_proof},p={base64.b64encode(proven).decode()}".encode(), signature
