"""The webhook over real TLS, asked as an API server asks it."""

import io
import json
import signal
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from proxy.cli import main
from proxy.config import Address
from proxy.kube import webhook as kube_webhook
from proxy.kube.api import Api
from proxy.kube.inject import inject
from proxy.kube.webhook import SelfSigned, Webhook, WebhookConfig, serve
from proxy.net.io.logs import Log
from tests.certificates import Authority
from tests.commands import started
from tests.kube.pods import DEFAULTS, pod
from tests.kube.reviews import Asking, asking, patched, review
from tests.ports import free_ports

Folder = tuple[Path, Authority]


@attrs.frozen
class Served:
    """A webhook that runs."""

    webhook: Webhook
    port: int
    authority: Authority
    expected: io.StringIO

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[Asking]:
        async with asking(self.port, self.authority.path.read_text()) as asked:
            yield asked


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    authority = Authority(tmp_path)
    issue(authority, tmp_path)
    return tmp_path, authority


def issue(authority: Authority, folder: Path, organization: str = "first") -> None:
    files = authority.issue("localhost", common_name=organization, file="tls")
    assert files.cert == folder / "tls.crt"


@asynccontextmanager
async def serving(
    folder: Folder, grace_s: float = 0, certificate: Path | SelfSigned | None = None
) -> AsyncIterator[Served]:
    (port,) = free_ports(1)
    expected = io.StringIO()
    config = WebhookConfig(Address("127.0.0.1", port), DEFAULTS, certificate or folder[0], grace_s)
    async with trio.open_nursery() as nursery:
        webhook: Webhook = await nursery.start(serve, config, Log("text", "debug", expected))
        yield Served(webhook, port, folder[1], expected)
        with trio.fail_after(15):
            webhook.stop()


async def test_annotated_pods_are_patched_over_a_persistent_connection(folder: Folder) -> None:
    async with serving(folder) as served, served.asking() as asked:
        for before in (pod(), pod(native="false"), pod(mode="transparent")):
            response = await asked.about(before)

            assert response["allowed"]
            assert patched(before, response) == inject(before, DEFAULTS).pod

        assert served.webhook.counts["injected"] == 3


async def test_other_pods_and_requests_are_allowed_without_patch(folder: Folder) -> None:
    async with serving(folder) as served, served.asking() as asked:
        for response in (
            await asked.about(pod(inject="false")),
            await asked.about(pod(), operation="UPDATE"),
            await asked.about(pod(), subResource="ephemeralcontainers"),
            await asked.about(pod(), kind={"group": "apps", "version": "v1", "kind": "Deployment"}),
            await asked.about(inject(pod(), DEFAULTS).pod, object=inject(pod(), DEFAULTS).pod),
        ):
            assert response["allowed"]
            assert "patch" not in response

        assert served.webhook.counts["skipped"] == served.webhook.counts.total() == 5


async def test_invalid_pod_is_rejected_with_all_reasons(folder: Folder) -> None:
    async with serving(folder) as served, served.asking() as asked:
        response = await asked.about(pod(spec={"hostNetwork": True}, mode="magic"))

    assert not response["allowed"]
    assert response["status"]["code"] == 422
    assert response["status"]["message"].startswith("Sidefetch: sidefetch.io/mode: 'magic'; accepted: address or ")
    assert "; spec.hostNetwork: true: " in response["status"]["message"]
    assert "warning injection-refused pod=shop/orders reason=" in served.expected.getvalue()


async def test_warnings_go_to_whoever_made_the_pod_no_longer_than_they_are_shown(folder: Folder) -> None:
    async with serving(folder) as served, served.asking() as asked:
        response = await asked.about(pod(mode="transparent"))

    assert len(response["warnings"]) == 3
    assert all(each.startswith("Sidefetch: container ") and len(each) <= 256 for each in response["warnings"])


async def test_reviews_of_small_pods_do_not_wait_for_those_of_large_ones(folder: Folder) -> None:
    app = pod()["spec"]["containers"][0]
    large = pod(spec={"containers": [{**app, "name": f"app-{number}"} for number in range(8_000)]})
    async with serving(folder) as served, served.asking() as busy, served.asking() as asked:
        done = trio.Event()
        answered = 0

        async def ask_large() -> None:
            assert (await busy.about(large))["allowed"]
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_large)
            while not done.is_set():
                assert (await asked.about(pod()))["allowed"]
                answered += 1

    assert answered > 5


async def test_dry_run_is_patched_but_not_counted(folder: Folder) -> None:
    async with serving(folder) as served, served.asking() as asked:
        response = await asked.about(pod(), dryRun=True)

        assert patched(pod(), response) == inject(pod(), DEFAULTS).pod
        assert served.webhook.counts["injected"] == 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"request": {}}',
        b"[" * 100_000,
        json.dumps({**review({}), "apiVersion": "admission.k8s.io/v1beta1"}).encode(),
        json.dumps({**review({}), "request": None}).encode(),
    ],
)
async def test_malformed_admission_review_returns_400_and_keeps_connection(folder: Folder, body: bytes) -> None:
    async with serving(folder) as served, served.asking() as asked:
        assert await asked("/inject", body) == (400, b"no AdmissionReview of admission.k8s.io/v1\n")
        assert (await asked.about(pod()))["allowed"]


@pytest.mark.parametrize(
    "broken", [None, [], 7, {"spec": []}, {"metadata": {"annotations": {"sidefetch.io/inject": 1}}}]
)
async def test_pods_of_any_shape_do_no_harm(folder: Folder, broken: Any) -> None:
    async with serving(folder) as served, served.asking() as asked:
        await asked.about(broken)

        assert served.webhook.counts["failed"] == 0


async def test_internal_error_returns_500_and_is_logged_and_counted(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.kube.review.inject", lambda *_: 1 / 0)
    async with serving(folder) as served, served.asking() as asked:
        status, _ = await asked("/inject", json.dumps(review(pod())).encode())

    assert status == 500
    assert "ZeroDivisionError" in served.expected.getvalue()
    assert served.webhook.counts["failed"] == 1


def limited(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    """Replace bounds of servers that start from now on."""
    monkeypatch.setattr(kube_webhook, "LIMITS", attrs.evolve(kube_webhook.LIMITS, **limits))


async def test_too_much_is_not_read(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, body_bytes=10_000)
    async with serving(folder) as served, served.asking() as asked:
        status, _ = await asked("/inject", b"x" * 10_001)

    assert status == 413


async def test_health_and_metrics_are_served_and_other_paths_are_not(folder: Folder) -> None:
    async with serving(folder) as served, served.asking() as asked:
        await asked.about(pod())

        assert await asked("/healthz") == (200, b"ok\n")
        status, metrics = await asked("/metrics")
        assert (status, b'sidefetch_webhook_pods_total{outcome="injected"} 1\n' in metrics) == (200, True)
        assert [(await asked(path))[0] for path in ("/inject", "/", "/healthz/..")] == [405, 404, 404]


async def test_replaced_certificate_is_used_for_new_connections(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.net.io.files.POLL_S", 0.02)

    async def shown(served: Served) -> str:
        async with served.asking() as asked:
            return str(asked.certificate["subject"])

    async with serving(folder) as served:
        assert "first" in await shown(served)
        issue(folder[1], folder[0], "second")
        with trio.fail_after(5):
            while "second" not in await shown(served):
                await trio.sleep(0.02)


async def test_silent_idle_and_slow_clients_are_disconnected(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with trio.fail_after(10):
        with monkeypatch.context() as hurried:
            limited(hurried, handshake_s=0.1)
            async with (
                serving(folder) as served,
                await trio.open_tcp_stream("127.0.0.1", served.port) as silent,
            ):
                assert await silent.receive_some() == b""
        with monkeypatch.context() as hurried:
            limited(hurried, idle_s=0.1)
            async with serving(folder) as served, served.asking() as idle:
                assert await idle.stream.receive_some() == b""
        limited(monkeypatch, request_s=0.1)
        async with serving(folder) as served, served.asking() as slow:
            await slow.stream.send_all(b"POST /inject HTTP/1.1\r\nHost: w\r\nContent-Length: 9\r\n\r\n{")
            assert await slow.stream.receive_some() == b""


async def test_of_too_many_connections_the_one_used_longest_ago_goes(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(monkeypatch, connections=2)
    async with serving(folder) as served, served.asking() as used, served.asking() as unused:
        await used("/healthz")
        async with served.asking() as third:
            assert (await third("/healthz"))[0] == (await used("/healthz"))[0] == 200
            with trio.fail_after(5):
                assert await unused.stream.receive_some() == b""


async def test_stopping_webhook_fails_health_check_but_serves_reviews_during_grace(folder: Folder) -> None:
    async with serving(folder, grace_s=2) as served, served.asking() as idle:
        assert (await idle("/healthz"))[0] == 200
        served.webhook.stop()
        with trio.fail_after(5):
            assert await idle.stream.receive_some() == b""
        async with served.asking() as late:
            assert (await late("/healthz")) == (503, b"stopping\n")
            with trio.fail_after(5):
                assert await late.stream.receive_some() == b""
        async with served.asking() as later:
            assert (await later.about(pod()))["allowed"]


async def test_plain_text_and_untrusting_clients_do_not_affect_others(folder: Folder, tmp_path: Path) -> None:
    stranger = Authority(tmp_path, "stranger").path.read_text()
    async with serving(folder) as served:
        async with await trio.open_tcp_stream("127.0.0.1", served.port) as plain:
            await plain.send_all(b"GET /healthz HTTP/1.1\r\n\r\n")
            with trio.fail_after(5):
                while await plain.receive_some():
                    pass
        with pytest.raises(trio.BrokenResourceError):
            async with asking(served.port, stranger):
                pass
        async with served.asking() as asked:
            assert (await asked("/healthz"))[0] == 200


@pytest.mark.parametrize(
    "said",
    [
        b"HEAD /healthz HTTP/1.1\r\nHost: w\r\n\r\n",
        b"CONNECT w:1 HTTP/1.1\r\nHost: w\r\n\r\n",
        b"GET /healthz HTTP/1.0\r\n\r\n",
        b"POST /inject HTTP/1.1\r\nHost: w\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
        b"POST /inject HTTP/1.1\r\nHost: w\r\nContent-Length: -1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: w\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: w\r\n\r\n" * 3,
        b"\x00" * 100,
        b"GET /" + b"a" * 100_000,
    ],
    ids=lambda said: said[:12].decode(),
)
async def test_unusual_requests_affect_at_most_their_own_connection(folder: Folder, said: bytes) -> None:
    async with serving(folder) as served:
        async with served.asking() as odd:
            with suppress(trio.BrokenResourceError):
                await odd.stream.send_all(said)
                with trio.move_on_after(0.1):
                    await odd.stream.receive_some()
        async with served.asking() as asked:
            assert (await asked("/healthz"))[0] == 200

    assert " error " not in served.expected.getvalue()


async def test_webhook_without_certificate_refuses_connections_and_can_be_stopped(folder: Folder) -> None:
    nowhere = SelfSigned(Api("https://127.0.0.1:1", folder[0]), "pair", "hook", 3600)
    async with serving(folder, certificate=nowhere) as served:
        with pytest.raises(trio.BrokenResourceError):
            async with served.asking():
                pass
        with trio.fail_after(5):
            while "certificate-not-stored" not in served.expected.getvalue():
                await trio.sleep(0.01)


async def test_the_command_serves_until_sigterm(folder: Folder, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    defaults = tmp_path / "defaults.json"
    defaults.write_text(json.dumps(dict(DEFAULTS.annotations)))
    arguments = ["--listen", f"127.0.0.1:{port}", "--certificate-dir", str(folder[0]), "--defaults", str(defaults)]
    async with started("webhook", *arguments, "--grace", "0s") as command:
        await command.until("listening address=")
        async with asking(port, folder[1].path.read_text()) as asked:
            assert patched(pod(), await asked.about(pod())) == inject(pod(), DEFAULTS).pod
        command.signal(signal.SIGTERM)
        assert await command.end() == 0

    assert "injected pod=shop/orders" in command.output
    assert "stopped injected=1 removed=0 skipped=0 refused=0 failed=0" in command.output


async def test_a_certificate_that_is_none_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_text("nothing")
    async with started("webhook", "--certificate-dir", str(tmp_path), "--listen", "127.0.0.1:1") as command:
        assert await command.end() == 2

    assert command.output.startswith("sidefetch: certificate-dir: ")


def test_it_shows_its_certificate_by_tls_1_2_or_newer(folder: Folder) -> None:
    from proxy.kube.certificates import from_folder

    context = from_folder(folder[0], Log("text", "error", io.StringIO())).value

    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["certificate-dir: accepted: either certificate-dir or self-signed"]),
        (
            ["--self-signed", "--certificate-dir", "/x"],
            ["certificate-dir: accepted: either certificate-dir or self-signed"],
        ),
        (
            ["--self-signed", "--certificate-life", "1s"],
            [
                "certificate-life: '1s'; accepted: 60s to",
                "secret: not given",
                "webhook-configuration: not given",
                "self-signed: this process is in no pod of Kubernetes",
            ],
        ),
        (
            ["--certificate-dir", "/x", "--listen", "9443", "--grace", "soon", "--log-level", "loud"],
            ["listen: '9443'; accepted: HOST:PORT", "grace: 'soon'", "log-level: 'loud'"],
        ),
        (["--certificate-dir", "/x", "--defaults", "/nowhere"], ["/nowhere: cannot be read"]),
    ],
)
def test_all_invalid_settings_are_reported(
    arguments: list[str], expected: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    assert main(["webhook", *arguments]) == 2

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(expected)
    assert all(line.startswith(f"sidefetch: {each}") for line, each in zip(lines, expected, strict=True))
