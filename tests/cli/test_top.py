"""``sidefetch top``: the status in a terminal."""

import sys
from typing import Any

import pytest
import trio
from rich.console import Console

from proxy.cli import main
from proxy.cli.screen import draw_screen, short_bytes
from proxy.demo.cluster import embedded_cluster
from proxy.telemetry.document import document
from proxy.telemetry.state import ReadingState
from tests.net.administered import administered, port_of, state_of
from tests.net.consumers import fetched
from tests.ports import free_port_range
from tests.telemetry.records import NOW_US, Link, busy, exchange, facts_of, fetch


def drawn(shown_state: Any, failed: str = "", width: int = 110) -> str:
    console = Console(width=width, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(draw_screen(shown_state, failed))
    return captured.get()


def test_screen_shows_values_of_api_document() -> None:
    text = drawn(document(facts_of(busy())))

    assert "Sidefetch ready" in text
    assert "cluster cluster, rack a" in text
    assert "reader 10.0.0.1" in text
    assert "librdkafka 0.11.6 v4" in text
    assert "leader 100.0 %" in text


def test_screen_shows_how_often_shared_records_were_delivered() -> None:
    state = ReadingState("a", NOW_US)
    state.observe(Link(9, "", client_id=None, is_shared_cache=True), fetch(record_bytes=1_400), NOW_US)
    for number in (1, 2, 3):
        state.observe(Link(number), exchange(source_bytes=1_400, is_shared=True), NOW_US)

    text = drawn(document(facts_of(state)), width=200)

    assert "in all, shared ones delivered 3.0 times" in " ".join(text.split())
    assert "shared ones" not in drawn(document(facts_of(busy())), width=200)


def test_before_anything_was_done_there_is_nothing_to_divide_by() -> None:
    text = drawn(document(facts_of(ReadingState(None, NOW_US))), "refused")

    assert "no response: refused" in text
    assert "rack not known" in text


def test_names_of_clients_steer_no_terminal() -> None:
    state = ReadingState("a", NOW_US)
    name = "\x1b[2J\x1b]0;owned\x07[bold]x"
    link = Link(client_id=name)
    state.observe(link, exchange(client_id=name), NOW_US)
    state.observe(link, fetch(), NOW_US)
    text = drawn(document(facts_of(state)))

    assert "\x1b" not in text
    assert "\x07" not in text
    assert "?[2J?]0;owned?[bold]x" in text


def test_it_fits_a_narrow_terminal() -> None:
    text = drawn(document(facts_of(busy())), width=60)

    assert max(map(len, text.splitlines())) <= 60


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (123456, "123 kB"), (-1_500_000, "-1.5 MB"), (999_999, "1 MB")],
)
def test_bytes_are_shown_with_three_digits(count: int, shown: str) -> None:
    assert short_bytes(count) == shown


async def test_top_queries_running_sidefetch(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it:
        cluster.create_topic("t", 1, assignment=[[1]])
        async with it.client(1) as client:
            await fetched(client, "a-reader", {0: 0}, 4)
            url = f"127.0.0.1:{port_of(it)}"
            code = await trio.to_thread.run_sync(main, ["top", url, "--once"])
            shown_state = await state_of(it)

    out = capsys.readouterr().out
    assert code == 0
    assert "a-reader 127.0.0.1" in out
    assert shown_state["cluster_id"] in out


def test_unreachable_sidefetch_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port_range(1)}"

    assert main(["top", url, "--once"]) == 1
    assert "refused" in capsys.readouterr().out


def test_url_that_is_not_http_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "file:///etc/passwd"]) == 2
    assert "URL: 'file:///etc/passwd' is no HTTP or HTTPS URL" in capsys.readouterr().err


def test_missing_rich_is_reported_with_install_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)

    assert main(["top"]) == 2
    assert "top needs rich, which is not installed: pip install 'sidefetch[top]'" in capsys.readouterr().err
