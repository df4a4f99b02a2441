"""Transparent mode with the kernel's own packet filter: real brokers on one host, a sidecar and an old client on
another, which is given the brokers' addresses and nothing else.
"""

import contextlib
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from kio.schema.describe_cluster.v1.request import DescribeClusterRequest
from kio.schema.find_coordinator.v4.request import FindCoordinatorRequest
from kio.schema.metadata.v12.request import MetadataRequest
from kio.static.primitive import i8

from proxy.kube.inject import inject
from proxy.kube.redirect import LISTEN_PORT, SPARED_UIDS
from tests.certificates import Authority
from tests.clients.conversation import Client, ClientFailed
from tests.kafka.admin import Admin, eventually, unique
from tests.kafka.ask import ask
from tests.kube.pods import DEFAULTS
from tests.kube.pods import pod as manifest
from tests.prerequisites import require
from tests.processes import Process
from tests.sidefetch import Sidefetch
from tests.transparent.namespaces import as_user, network
from tests.transparent.pod import (
    NEAR,
    OLD,
    OTHER_FAR,
    RECORDS,
    SERVICE,
    SIDEFETCH,
    SILENCE_S,
    Pod,
    pod_and_cluster,
)

pytestmark = [pytest.mark.kafka, pytest.mark.kubernetes]

MESH_UID: Final = SPARED_UIDS[1]
MESH_PORT: Final = 15001
MESH_RULES: Final = f"""\
table ip mesh {{
    chain output {{
        type nat hook output priority -100; policy accept;
        meta skuid {MESH_UID} return
        oifname "lo" return
        meta l4proto tcp redirect to :{MESH_PORT}
    }}
}}
"""
"""Rules as Istio's: they redirect all traffic out of the pod, except for its own proxy's."""


@pytest.fixture(scope="module")
def pod() -> Iterator[Pod]:
    require("java", "maven", "nftables", "namespaces")
    with pod_and_cluster() as pod:
        yield pod


# ------------------------------------------------------------------------------------------------- Kafka


@pytest.mark.parametrize("client", [OLD, "java-0.9.0.1"])
def test_an_old_client_that_knows_the_brokers_addresses_only_reads_kafka_4(pod: Pod, client: str) -> None:
    with pod.sidecar() as sidecar, pod.redirected():
        assert len(pod.read(pod.cluster.bootstrap, client=client)) == RECORDS
    assert "fetch-connection-closed" not in sidecar.log_text()


def test_it_reads_over_ipv6(pod: Pod) -> None:
    with pod.sidecar(pod.cluster.bootstrap_of("SIX")), pod.redirected():
        assert len(pod.read(pod.cluster.bootstrap_of("SIX"))) == RECORDS


def test_it_is_turned_away_before_the_rules_are_there_and_after(pod: Pod) -> None:
    with pod.sidecar():
        assert pod.reads_nothing(pod.cluster.bootstrap)
        with pod.redirected():
            assert not pod.reads_nothing(pod.cluster.bootstrap)
        assert pod.reads_nothing(pod.cluster.bootstrap)


def test_a_group_finds_its_coordinator_and_commits(pod: Pod) -> None:
    group = unique("group")
    with pod.sidecar(), pod.redirected(), pod.host.inside(), Client(OLD) as program:
        assert len(program.read_in_group(pod.cluster.bootstrap, pod.topic, group, RECORDS)) == RECORDS
        task = program.begin("group", pod.cluster.bootstrap, pod.topic, group=group, count=1)
        with pytest.raises(ClientFailed):
            task.wait(SILENCE_S)
        assert not task.records


def test_the_address_of_a_service_is_a_way_in(pod: Pod) -> None:
    """Check an address that is no broker's: it leads to any broker, and Metadata has the brokers' own addresses."""
    service = f"{SERVICE}:9092"
    with pod.sidecar(service, options=["--log-level", "debug"]) as sidecar, pod.redirected():
        assert len(pod.read(service)) == RECORDS
    went = set(re.findall(r" connection-redirected .*destination=(\S+)", sidecar.log_text()))
    assert service in went
    assert went & pod.addresses == went - {service} != set()


def test_responses_contain_real_broker_addresses(pod: Pod) -> None:
    def input_text() -> list[object]:
        """All but the controller, for which each answer names any broker."""
        metadata = ask(address, MetadataRequest(topics=(), include_topic_authorized_operations=False))
        found = ask(address, FindCoordinatorRequest(key_type=i8(0), coordinator_keys=("a group",)))
        described = ask(address, DescribeClusterRequest(include_cluster_authorized_operations=False))
        return [metadata.brokers, found.coordinators, described.brokers]

    address = pod.cluster.brokers[1].address
    with pod.far.inside():
        assert Admin(pod.cluster).coordinator("a group") in pod.cluster.brokers
        theirs = input_text()
    with pod.sidecar(), pod.redirected(), pod.host.inside():
        assert input_text() == theirs


def test_clients_that_log_in_find_their_brokers_before_sidefetch_knows_any(pod: Pod) -> None:
    """Check a restart: clients return before any client's Metadata has shown the brokers."""
    bootstrap = pod.cluster.bootstrap_of("LOGIN")
    settings = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "secret",
        "group.id": "unused",
        "auto.offset.reset": "earliest",
        "topic.metadata.refresh.interval.ms": 600_000,
    }
    login = ["--upstream-sasl", "client"]
    with pod.far.inside():
        topic = Admin(pod.cluster).create_topic(unique("login"), 3)
        Admin(pod.cluster).produce_known(topic, RECORDS, 3)
    with pod.sidecar(bootstrap, options=login) as sidecar, pod.redirected():
        with pod.host.inside():
            consumer = Consumer(settings)
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(3)])
        assert read_by(consumer, RECORDS) == RECORDS
        sidecar.kill()
        with pod.host.inside():
            sidecar.start()
        with pod.far.inside():
            Admin(pod.cluster).produce_known(topic, RECORDS, 3, first=RECORDS)
        assert read_by(consumer, RECORDS) == RECORDS
        consumer.close()


def read_by(consumer: Consumer, count: int) -> int:
    """Return how many of *count* records it gets."""
    got = 0
    deadline = time.monotonic() + 60
    while got < count and time.monotonic() < deadline:
        got += sum(not each.error() for each in consumer.consume(count - got, 1))
    return got


def test_a_broker_that_comes_later_is_covered(pod: Pod) -> None:
    with pod.far.inside():
        pod.cluster.stop(3)
    with pod.sidecar(pod.cluster.brokers[1].address) as sidecar, pod.redirected():
        assert f"port={sidecar.port_of(1)}" in sidecar.log_text()
        with pod.far.inside():
            pod.cluster.restart(3)
            admin = Admin(pod.cluster)
            topic = admin.create_topic(unique("later"), 3)
            admin.produce_known(topic, RECORDS, 3)
        assert len(pod.read(pod.cluster.bootstrap, topic)) == RECORDS


def test_networks_that_are_not_named_are_left_alone(pod: Pod) -> None:
    with pod.sidecar(), pod.redirected("--networks", "10.78.0.0/16"):
        assert pod.reads_nothing(pod.cluster.bootstrap)
    with pod.sidecar(), pod.redirected("--networks", "10.77.0.0/16,fd77::/16"):
        assert len(pod.read(pod.cluster.bootstrap)) == RECORDS


def test_injected_transparent_sidecar_serves_the_client_of_its_pod(pod: Pod, tmp_path: Path) -> None:
    """With the rights that it gives to each, and no more."""
    asked = {"mode": "transparent", "redirect_ports": pod.ports, "bootstrap_servers": pod.cluster.bootstrap}
    step, sidecar, *_ = inject(manifest(**asked), DEFAULTS).pod["spec"]["initContainers"]
    settings = {each["name"]: each["value"] for each in sidecar["env"] if "value" in each}
    with_net_admin_alone = ["setpriv", "--bounding-set=-all,+net_admin", "--inh-caps=-all", "--no-new-privs", "--"]
    start = [*as_user(sidecar["securityContext"]["runAsUser"]), *SIDEFETCH, *sidecar["args"]]
    assert step["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN"]}

    try:
        pod.host.run(*with_net_admin_alone, *SIDEFETCH, *step["args"])
        with pod.host.inside(), Process(start, log=tmp_path / "sidecar.log", env=settings) as process:
            eventually(lambda: "cluster-found" in process.log_text(), "it serves")
            assert len(pod.read(pod.cluster.bootstrap)) == RECORDS
    finally:
        pod.redirect("remove")


# ------------------------------------------------------------------------------------------- other traffic


def test_tls_reaches_whom_it_was_meant_for(pod: Pod, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    theirs = authority.issue(OTHER_FAR)
    secured = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    secured.load_cert_chain(theirs.cert, theirs.key)
    with pod.far.inside():
        listening = socket.create_server((OTHER_FAR, 9092))

    def answer() -> None:
        accepted, _ = listening.accept()
        with secured.wrap_socket(accepted, server_side=True) as inside:
            inside.sendall(inside.recv(100).upper())

    with listening, pod.sidecar() as sidecar, pod.redirected():
        server = threading.Thread(target=answer)
        server.start()
        trusting = ssl.create_default_context(cafile=str(authority.path))
        with pod.host.inside():
            stream = socket.create_connection((OTHER_FAR, 9092), timeout=10)
        with trusting.wrap_socket(stream, server_hostname=OTHER_FAR) as inside:
            inside.sendall(b"hello")
            assert inside.recv(100) == b"HELLO"
        server.join(10)
    assert re.search(rf" connection-forwarded .*destination={OTHER_FAR}:9092 speaks=tls", sidecar.log_text())
    assert re.search(r" stopped .*\bpassed_tls=1\b", sidecar.log_text())


def test_host_local_connections_are_not_redirected(pod: Pod) -> None:
    """Check other sidecars' ports, and Sidefetch's own ports for clients."""
    with pod.redirected():
        for host in (*NEAR, "127.0.0.1", "::1"):
            with pod.host.inside():
                family = socket.AF_INET6 if ":" in host else socket.AF_INET
                listening = socket.create_server((host, 9092), family=family)
                with listening, socket.create_connection((host, 9092), timeout=5):
                    listening.settimeout(5)
                    listening.accept()[0].close()


def test_redirect_loop_of_a_sidecar_without_uid_exemption_is_logged_and_stopped(pod: Pod) -> None:
    with pod.sidecar(uid=4711) as sidecar, pod.redirected("--uid", "65532"):
        assert pod.reads_nothing(pod.cluster.bootstrap)
    log = sidecar.log_text()
    assert " redirect-loop " in log
    assert "--uid" in log
    input_text = re.search(r" stopped .*\bloops_refused=(\d+)", log)
    assert input_text is not None
    assert int(input_text[1]) < 200


# ------------------------------------------------------------------------------------------- other rules


@pytest.mark.parametrize("comes_first", ["mesh", "sidefetch"])
def test_beside_a_service_mesh_the_client_comes_to_us_and_we_to_the_mesh(
    pod: Pod, tmp_path: Path, comes_first: str
) -> None:
    command = [*as_user(MESH_UID), sys.executable, "-m", "tests.transparent.mesh", str(MESH_PORT)]
    root = Path(__file__).parents[2]
    with contextlib.ExitStack() as stack:
        stack.enter_context(pod.host.inside())
        mesh = stack.enter_context(Process(command, log=tmp_path / "mesh.log", cwd=root))
        eventually(lambda: "listening" in mesh.log_text(), "the mesh listens")
        if comes_first == "mesh":
            pod.host.run("nft", "-f", "-", input_text=MESH_RULES)
        stack.callback(pod.host.run, "nft", "-f", "-", input_text="table ip mesh\ndelete table ip mesh\n")
        stack.enter_context(pod.redirected())
        if comes_first == "sidefetch":
            pod.host.run("nft", "-f", "-", input_text=MESH_RULES)
        sidecar = stack.enter_context(pod.sidecar(options=["--log-level", "debug"]))

        assert len(pod.read(pod.cluster.bootstrap)) == RECORDS

        went = set(re.findall(r"to (\S+)", mesh.log_text()))
        assert went & pod.addresses == went != set()
        assert " redirect-loop " not in sidecar.log_text()
        # Each of the client's connections has come to us, and none of them to the mesh.
        assert set(re.findall(r" connection-redirected .*destination=(\S+)", sidecar.log_text())) == went


def test_a_host_without_ipv6_is_served_without_it(pod: Pod) -> None:
    with network(("10.79.0.1/24",), ()) as (host, _), host.inside():
        Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
        where = f"127.0.0.1:{LISTEN_PORT},[::1]:{LISTEN_PORT}"
        host.run(*SIDEFETCH, "redirect", "install")
        with Sidefetch(pod.cluster.bootstrap, options=["--transparent", where]) as sidecar:
            assert f"listen-address-skipped address=[::1]:{LISTEN_PORT}" in sidecar.log_text()


def test_rules_are_put_in_and_taken_out_as_often_as_one_likes(pod: Pod) -> None:
    pod.host.run("nft", "add", "table", "inet", "somebodys")
    for _ in range(2):
        pod.redirect("install", "--ports", "9092")
        pod.redirect("install", "--ports", "9093")
    rules = pod.host.run("nft", "list", "ruleset")
    assert rules.count("redirect to") == 1
    assert "9093" in rules
    for _ in range(2):
        pod.redirect("remove")
    assert pod.host.run("nft", "list", "ruleset").split() == ["table", "inet", "somebodys", "{", "}"]
    pod.host.run("nft", "delete", "table", "inet", "somebodys")


def test_redirect_install_without_permission_reports_the_required_capability(pod: Pod) -> None:
    with pod.host.inside():
        command = [*as_user(4711), *SIDEFETCH, "redirect", "install"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "NET_ADMIN" in done.stderr
