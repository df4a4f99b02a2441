"""The status page in a real browser, before a proxy that is read through."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from proxy.demo.cluster import EmbeddedCluster, embedded_cluster
from tests.net.administered import administered, port_of, state_of
from tests.net.browser import PHONE, WIDE, Browser, browsing, serious_faults
from tests.net.consumers import consume
from tests.net.proxied import Proxied
from tests.prerequisites import require

pytestmark = pytest.mark.telemetry

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "build" / "page"
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    require("chromium")
    with browsing() as found:
        yield found


@pytest.fixture
def browser(chromium: Browser) -> Browser:
    """With nothing of the test before."""
    chromium.chrome.get("about:blank")
    chromium.chrome.get_log("browser")  # type: ignore[no-untyped-call]
    return chromium


async def read_by_many(it: Proxied, nursery: trio.Nursery) -> None:
    """Three clients, one of them with a name that is out for no good."""
    for node in (1, 2, 3):
        await it.listening(node)
        nursery.start_soon(partial(consume, it, "billing", node, [node - 1]))
        nursery.start_soon(partial(consume, it, HOSTILE, node, [node - 1]))
    nursery.start_soon(partial(consume, it, "a-client-with-a-very-long-name-" * 4, 1, [0]))


def filled(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("t", 3, assignment=[[1], [2], [3]])
    for partition in range(3):
        cluster.append("t", partition, [b"x" * 1000] * 5)


async def value(browser: Browser, name: str) -> Any:
    return json.loads(await browser.script("return document.getElementById(arguments[0]).dataset.value", name))


async def until_shown(browser: Browser, at_us: int) -> None:
    """Wait until the page shows the state of that time, or a later one."""
    with trio.fail_after(20):
        while await browser.script("return Number(document.body.dataset.nowUs || 0)") < at_us:
            await trio.sleep(0.1)


async def test_page_shows_the_numbers_of_the_api_which_change_while_a_consumer_reads(
    browser: Browser,
) -> None:
    async with embedded_cluster(brokers=3) as cluster, administered(cluster, rack="a") as it:
        filled(cluster)
        async with trio.open_nursery() as nursery:
            await read_by_many(it, nursery)
            await browser.open(f"http://127.0.0.1:{port_of(it)}/")
            first = await state_of(it)
            await until_shown(browser, first["now_us"])
            before = await rows(browser, "brokers")
            cluster.append("t", 0, [b"y" * 5000])
            with trio.fail_after(20):
                while await rows(browser, "brokers") == before:
                    await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
        await trio.sleep(0.5)
        state = await state_of(it)
        await until_shown(browser, state["now_us"])
        page = {name: await value(browser, name) for name in ("saved", "sessions", "clients-count")}
        brokers = await rows(browser, "brokers")
        complaints = await browser.complaints()

    assert page == {
        "saved": state["total"]["saved_bytes"],
        "sessions": state["sessions"]["broker"]["sessions"],
        "clients-count": len(state["clients"]),
    }
    assert brokers == [[each["record_bytes"], each["fetches"], each["sessions"]] for each in state["brokers"]]
    assert sum(each["record_bytes"] for each in state["brokers"]) == state["total"]["record_bytes"] > 0
    assert complaints == []


async def rows(browser: Browser, table: str) -> list[list[int]]:
    """The numbers of a table's rows."""
    found = await browser.script(
        "return [...document.getElementById(arguments[0]).tBodies[0].rows]"
        ".map(row => [...row.querySelectorAll('[data-value]')].map(cell => Number(cell.dataset.value)))",
        table,
    )
    return [[int(each) for each in row] for row in found]


async def test_page_is_readable_on_a_phone_in_both_themes_and_client_names_are_inert(
    browser: Browser,
) -> None:
    async with embedded_cluster(brokers=3) as cluster, administered(cluster, rack="a") as it:
        filled(cluster)
        it.proxy.log.warning("fetch-connection-closed", node=1, reason="x" * 300)
        async with trio.open_nursery() as nursery:
            await read_by_many(it, nursery)
            await trio.sleep(1)
            await browser.open(f"http://127.0.0.1:{port_of(it)}/")
            await until_shown(browser, (await state_of(it))["now_us"])
            for theme in ("light", "dark"):
                for name, size in (("wide", WIDE), ("phone", PHONE)):
                    await browser.look(size, theme)
                    await browser.picture(PICTURES / f"{name}-{theme}.png")
                    across = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
                    assert await browser.script(across) == 0, name
                    assert await serious_faults(browser) == [], (name, theme)
            grounds = {theme: await ground(browser, theme) for theme in ("light", "dark")}
            names = await browser.script(
                "return [...document.querySelectorAll('#clients tbody th span span')].map(each => each.textContent)"
            )
            nursery.cancel_scope.cancel()
        complaints = await browser.complaints()

    assert HOSTILE in names
    assert grounds["light"] != grounds["dark"]
    assert complaints == []


async def ground(browser: Browser, theme: str) -> str:
    await browser.look(WIDE, theme)
    return str(await browser.script("return getComputedStyle(document.body).backgroundColor"))


async def test_page_does_not_change_without_traffic_and_pause_stops_updates(browser: Browser) -> None:
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it:
        await browser.open(f"http://127.0.0.1:{port_of(it)}/")
        await until_shown(browser, (await state_of(it))["now_us"])
        await browser.script(
            "window.changes = 0; const about = document.getElementById('about');"
            "new MutationObserver(all => changes += all.filter(each => !about.contains(each.target)).length)"
            ".observe(document.body, {subtree: true, childList: true, characterData: true})"
        )
        await until_shown(browser, (await state_of(it))["now_us"])
        await until_shown(browser, (await state_of(it))["now_us"])
        changes = await browser.script("return changes")
        await browser.script("document.getElementById('pause').focus(); document.activeElement.click()")
        paused = await browser.script("return document.body.dataset.nowUs")
        await trio.sleep(2.5)
        still = await browser.script("return document.body.dataset.nowUs")

    assert changes == 0
    assert paused == still


async def test_page_shows_when_sidefetch_stops_responding(browser: Browser) -> None:
    async with embedded_cluster(brokers=1) as cluster, administered(cluster) as it:
        await browser.open(f"http://127.0.0.1:{port_of(it)}/")
        await until_shown(browser, (await state_of(it))["now_us"])
        ready = await browser.script("return document.getElementById('status').textContent")
    with trio.fail_after(10):
        while "No answer" not in await browser.script("return document.getElementById('status').textContent"):
            await trio.sleep(0.1)

    assert ready == "Ready"
