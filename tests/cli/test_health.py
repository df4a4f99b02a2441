"""``sidefetch health``, the health check of the image."""

import subprocess
import sys

import pytest
import trio

from proxy.cli import main
from proxy.demo.cluster import embedded_cluster
from tests.net.administered import administered, port_of
from tests.ports import free_port_range


async def test_health_uses_port_from_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it, it.client(1) as client:
        await client.call("metadata", 5, {})
        monkeypatch.setenv("SIDEFETCH_ADMIN_LISTEN", f"0.0.0.0:{port_of(it)}")
        alive = await trio.to_thread.run_sync(main, ["health"])
        it.proxy.stop()
        ready = await trio.to_thread.run_sync(main, ["health", f"127.0.0.1:{port_of(it)}", "--probe", "/readyz"])

    assert (alive, ready) == (0, 1)
    assert capsys.readouterr().out == "yes\nno: Sidefetch is stopping\n"


def test_health_fails_if_connection_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", f"127.0.0.1:{free_port_range(1)}"]) == 1
    assert "refused" in capsys.readouterr().out


def test_invalid_address_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIDEFETCH_ADMIN_LISTEN", "9080")

    assert main(["health"]) == 2
    assert "environment SIDEFETCH_ADMIN_LISTEN: '9080' is not HOST:PORT; accepted" in capsys.readouterr().err


def test_it_loads_nothing_that_only_serving_takes() -> None:
    loaded = "import sys; from proxy.cli import main; main(['health', '127.0.0.1:1']); print(*sys.modules)"
    reported = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout

    assert {"opentelemetry", "prometheus_client"}.isdisjoint(reported.split())
