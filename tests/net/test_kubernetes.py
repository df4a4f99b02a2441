"""Requests to the Kubernetes API for the node's zone, against an HTTPS server with its responses."""

import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import pytest

from proxy.config import RackSource, RoutingConfig
from proxy.config.rack import ZONE_LABEL, RackFound
from proxy.net.rack import find_rack
from tests.prerequisites import require

TOKEN = "ey.the-pods.token"
KUBERNETES = RoutingConfig(rack_from=(RackSource("kubernetes"),))


class Asked(BaseHTTPRequestHandler):
    """One request; the test's own function answers it."""

    server: "ApiServer"

    def do_GET(self) -> None:
        self.server.asked.append((self.path, dict(self.headers)))
        self.server.answer(self)

    def say(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def node(self, labels: dict[str, str]) -> None:
        self.say(200, json.dumps({"kind": "Node", "metadata": {"name": "n", "labels": labels}}).encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class ApiServer(ThreadingHTTPServer):
    """A server whose responses are made by *answer*, which a test may replace."""

    daemon_threads = True

    def __init__(self, certificate: Path, key: Path) -> None:
        super().__init__(("127.0.0.1", 0), Asked)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.answer: Callable[[Asked], Any] = lambda asked: asked.node({ZONE_LABEL: "eu-1a"})

    def handle_error(self, *_: object) -> None:
        """Ignore clients that disconnect, which some tests do on purpose."""


@attrs.frozen
class Pod:
    """The files and variables of a pod, and the server behind them."""

    api: ApiServer
    account: Path

    @property
    def environ(self) -> dict[str, str]:
        port = str(self.api.server_address[1])
        return {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": port,
            "NODE_NAME": "node-7.internal",
        }

    async def found(self, **environ: str) -> RackFound:
        return await find_rack(KUBERNETES, {**self.environ, **environ}, service_account=self.account)

    async def fault(self, **environ: str) -> tuple[str, str]:
        """Return the reason why there is no rack, and the remedy."""
        found = await self.found(**environ)
        assert found.rack is None
        (fault,) = found.faults
        assert TOKEN not in repr(found)
        return fault.why, fault.remedy


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a certificate for 127.0.0.1 that vouches for itself."""
    require("openssl")
    folder = tmp_path_factory.mktemp("certificate")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=kubernetes"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "ca.crt"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def pod(certificate: Path, tmp_path: Path) -> Iterator[Pod]:
    account = tmp_path / "serviceaccount"
    account.mkdir()
    (account / "token").write_text(TOKEN + "\n")
    (account / "ca.crt").write_bytes((certificate / "ca.crt").read_bytes())
    api = ApiServer(certificate / "ca.crt", certificate / "key.pem")
    thread = threading.Thread(target=api.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield Pod(api, account)
    api.shutdown()
    thread.join()
    api.server_close()


async def test_node_zone_is_requested_with_the_service_account_token(pod: Pod) -> None:
    found = await pod.found()

    assert found == RackFound("eu-1a", "kubernetes: node node-7.internal")
    ((path, headers),) = pod.api.asked
    assert path == "/api/v1/nodes/node-7.internal"
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert headers["Accept"].startswith("application/json;as=PartialObjectMetadata")


async def test_another_label_may_be_the_rack(pod: Pod) -> None:
    pod.api.answer = lambda asked: asked.node({ZONE_LABEL: "us-east-1a", "topology.k8s.aws/zone-id": "use1-az4"})
    place = RackSource("kubernetes", "topology.k8s.aws/zone-id")

    found = await find_rack(RoutingConfig(rack_from=(place,)), pod.environ, service_account=pod.account)

    assert found == RackFound("use1-az4", "kubernetes:topology.k8s.aws/zone-id: node node-7.internal")


async def test_node_request_ignores_https_proxy_variable(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")

    assert (await pod.found()).rack == "eu-1a"


async def test_a_nodes_name_stays_within_its_place_in_the_path(pod: Pod) -> None:
    await pod.found(NODE_NAME="../pods?x=1")

    assert pod.api.asked[0][0] == "/api/v1/nodes/..%2Fpods%3Fx%3D1"


@pytest.mark.parametrize(
    ("status", "remedy"), [(401, "RBAC"), (403, "RBAC"), (404, "set NODE_NAME from spec.nodeName"), (500, "--rack")]
)
async def test_api_error_status_is_reported_with_remedy(pod: Pod, status: int, remedy: str) -> None:
    pod.api.answer = lambda asked: asked.say(status, b'{"kind": "Status"}')

    why, reported = await pod.fault()

    assert why == f"the API answers {status} for node node-7.internal"
    assert remedy in reported


async def test_node_without_zone_label_is_reported_with_remedy(pod: Pod) -> None:
    pod.api.answer = lambda asked: asked.node({"kubernetes.io/hostname": "n"})

    why, remedy = await pod.fault()

    assert why == "node node-7.internal: the node has no label topology.kubernetes.io/zone"
    assert remedy.startswith("label the node")


async def test_the_token_goes_nowhere_but_to_the_api(pod: Pod) -> None:
    there = f"https://127.0.0.1:{pod.environ['KUBERNETES_SERVICE_PORT']}/elsewhere"
    pod.api.answer = lambda asked: asked.say(302, Location=there)

    assert (await pod.fault())[0] == "the API answers 302 for node node-7.internal"
    assert len(pod.api.asked) == 1


@pytest.mark.parametrize("body", [b"", b"<html>", b"x" * (4 * 1024**2 + 1)])
async def test_api_response_that_is_not_a_node_is_reported(pod: Pod, body: bytes) -> None:
    pod.api.answer = lambda asked: asked.say(200, body)

    assert ("no node" if len(body) < 10 else "more than") in (await pod.fault())[0]


async def test_api_response_cut_short_is_reported(pod: Pod) -> None:
    pod.api.answer = lambda asked: asked.connection.shutdown(socket.SHUT_RDWR)

    assert "broke off" in (await pod.fault())[0]


async def test_api_request_times_out_when_api_does_not_respond(pod: Pod) -> None:
    over = threading.Event()
    pod.api.answer = lambda _: over.wait(10)
    began = time.monotonic()

    try:
        why, _ = await pod.fault()
    finally:
        over.set()

    assert time.monotonic() - began < 5
    assert "TimeoutError" in why


async def test_an_api_with_another_certificate_gets_no_token(pod: Pod, certificate: Path, tmp_path: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=other"]
    command += ["-keyout", "other.key", "-out", str(pod.account / "ca.crt")]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert (pod.account / "ca.crt").read_bytes() != (certificate / "ca.crt").read_bytes()

    why, _ = await pod.fault()

    assert "CERTIFICATE_VERIFY_FAILED" in why
    assert pod.api.asked == []


async def test_unreachable_api_is_reported_with_remedy(pod: Pod) -> None:
    why, remedy = await pod.fault(KUBERNETES_SERVICE_PORT="1")

    assert why.startswith("the API at 127.0.0.1:1 was not reached: ")
    assert "--rack" in remedy


async def test_missing_node_name_is_reported_with_remedy_without_api_request(pod: Pod) -> None:
    assert await pod.fault(NODE_NAME="") == (
        "NODE_NAME is not set",
        "set NODE_NAME from spec.nodeName in the pod's manifest",
    )
    assert pod.api.asked == []


@pytest.mark.parametrize(
    ("file", "content"), [("token", None), ("token", "two\nlines"), ("ca.crt", None), ("ca.crt", "")]
)
async def test_invalid_service_account_sends_no_api_request(pod: Pod, file: str, content: str | None) -> None:
    (pod.account / file).unlink()
    if content is not None:
        (pod.account / file).write_text(content)

    _, remedy = await pod.fault()

    assert "--rack" in remedy
    assert pod.api.asked == []


async def test_outside_of_kubernetes_nothing_is_complained_of(pod: Pod) -> None:
    found = await pod.found(KUBERNETES_SERVICE_HOST="")

    assert (found.rack, found.faults) == (None, ())
