"""A real API server of Kubernetes with a real etcd, on loopback; without nodes, so that pods run nowhere."""

import json
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import attrs

from proxy.kube.api import Api
from tests.certificates import Authority
from tests.kube.built import programs
from tests.ports import free_ports
from tests.prerequisites import require
from tests.processes import Process

__all__ = ["ApiServer", "Refusal", "running"]

_READY_S: Final = 60.0
_TOKEN: Final = "tests-are-the-masters-here"


class Refusal(Exception):
    """An error of the API server."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@attrs.frozen
class ApiServer:
    """One that runs, and how to ask it as its master."""

    port: int
    folder: Path
    authority: Path
    """The file that vouches for it."""
    token: str = _TOKEN
    """Its master's."""

    def ask(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        """The answer. Raises: Refusal."""
        return self.ask_and_warnings(method, path, body, content_type)[0]

    def ask_and_warnings(
        self, method: str, path: str, body: Any = None, content_type: str = "application/json"
    ) -> tuple[dict[str, Any], list[str]]:
        """Return the response, and the warnings of the API server."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type}
        request = Request(f"https://127.0.0.1:{self.port}{path}", data, headers, method=method)
        context = ssl.create_default_context(cafile=str(self.authority))
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        try:
            with build_opener(HTTPSHandler(context=context), ProxyHandler({})).open(request, timeout=30) as answer:
                warnings = [each.split('"')[1] for each in answer.headers.get_all("Warning") or ()]
                return json.loads(answer.read()), warnings
        except HTTPError as refused:
            with refused:
                raise Refusal(refused.code, str(json.loads(refused.read())["message"])) from None

    def create_pod(
        self, pod: Mapping[str, Any], namespace: str = "default", *, dry_run: bool = False
    ) -> tuple[dict[str, Any], list[str]]:
        """Create a pod; return it as admitted, and the warnings."""
        path = f"/api/v1/namespaces/{namespace}/pods{'?dryRun=All' if dry_run else ''}"
        return self.ask_and_warnings("POST", path, pod)

    def create_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """With the service account that a controller would make."""
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels or {}}})
        self.create_account(name)

    def create_account(self, namespace: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        self.ask("POST", path, {"metadata": {"name": "default"}})

    def as_pod(self, namespace: str, account: str) -> Api:
        """Return the API for a pod of that service account, with the files that a kubelet would mount."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        token = self.ask("POST", path, {"spec": {}})["status"]["token"]
        folder = self.folder / f"{namespace}-{account}"
        folder.mkdir(exist_ok=True)
        (folder / "token").write_text(token)
        (folder / "namespace").write_text(namespace)
        (folder / "ca.crt").write_bytes(self.authority.read_bytes())
        environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.port)}
        api = Api.of_this_pod(environ, folder)
        assert api is not None
        return api


@contextmanager
def running(folder: Path) -> Iterator[ApiServer]:
    """Start both programs, built first if necessary, with their files in *folder*."""
    require("openssl")
    built = programs()
    port, client, peer = free_ports(3)
    authority = Authority(folder, "api")
    files = authority.issue("127.0.0.1", file="api-server")
    key = folder / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    tokens = folder / "tokens.csv"
    tokens.write_text(f'{_TOKEN},tests,tests,"system:masters"\n')
    store = [
        str(built / "etcd"),
        *("--data-dir", str(folder / "etcd"), "--unsafe-no-fsync", "--log-level", "error"),
        *("--listen-client-urls", f"http://127.0.0.1:{client}"),
        *("--advertise-client-urls", f"http://127.0.0.1:{client}"),
        *("--listen-peer-urls", f"http://127.0.0.1:{peer}"),
    ]
    server = [
        str(built / "apiserver"),
        *("--etcd-servers", f"http://127.0.0.1:{client}"),
        *("--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", str(port)),
        *("--tls-cert-file", str(files.cert), "--tls-private-key-file", str(files.key)),
        *("--service-account-issuer", "https://kubernetes.default.svc"),
        *("--service-account-key-file", str(key), "--service-account-signing-key-file", str(key)),
        *("--service-cluster-ip-range", "10.96.0.0/16", "--endpoint-reconciler-type", "none"),
        *("--authorization-mode", "RBAC", "--token-auth-file", str(tokens)),
    ]
    with Process(store, log=folder / "etcd.log"), Process(server, log=folder / "api-server.log") as process:
        api = ApiServer(port, folder, authority.path)
        _wait(api, process)
        yield api


def _wait(api: ApiServer, process: Process) -> None:
    deadline = time.monotonic() + _READY_S
    while True:
        assert process.exit_code is None, process.tail()
        assert time.monotonic() < deadline, process.tail()
        try:
            api.ask("GET", "/api/v1/namespaces/default")
            api.create_account("default")
        except (OSError, ValueError, Refusal):
            time.sleep(0.2)
        else:
            return
