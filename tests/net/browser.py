"""A real browser, driven in a thread."""

import base64
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import trio
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

__all__ = ["PHONE", "WIDE", "Browser", "browsing", "serious_faults"]

T = TypeVar("T")
PHONE = (390, 844)
WIDE = (1280, 900)
_ROOT: Final = Path(__file__).parents[2]
_AXE: Final = "axe-core@4.14.1"


@attrs.frozen
class Browser:
    """Chromium without a window."""

    chrome: Chrome

    async def do(self, work: Callable[[Chrome], T]) -> T:
        return await trio.to_thread.run_sync(work, self.chrome)

    async def script(self, text: str, *arguments: Any) -> Any:
        """Return the result of a function's body."""
        return await self.do(lambda chrome: chrome.execute_script(text, *arguments))

    async def open(self, url: str) -> None:
        await self.do(lambda chrome: chrome.get(url))

    async def look(self, size: tuple[int, int], theme: str) -> None:
        """Be as large as that, and ``dark`` or ``light``."""
        width, height = size
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        await self.do(lambda chrome: chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen))
        await self.do(lambda chrome: chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", media))
        await trio.sleep(0.3)

    async def picture(self, path: Path) -> None:
        """Save a picture of the whole page."""

        def take(chrome: Chrome) -> None:
            reported = chrome.execute_cdp_cmd(
                "Page.captureScreenshot", {"format": "png", "captureBeyondViewport": True}
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(base64.b64decode(reported["data"]))

        await self.do(take)

    async def complaints(self) -> list[str]:
        """Return the errors and warnings on the console."""
        entries = await self.do(lambda chrome: chrome.get_log("browser"))  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries]


@contextmanager
def browsing() -> Iterator[Browser]:
    """Needs Chromium and its driver. Takes seconds in which nothing else goes on: not to be called from trio."""
    options = ChromeOptions()
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert binary is not None
    assert driver is not None
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options, Service(driver))
    try:
        yield Browser(chrome)
    finally:
        chrome.quit()


async def serious_faults(browser: Browser) -> list[str]:
    """Return the serious faults that axe finds."""
    await browser.script(await trio.to_thread.run_sync(_axe))
    await browser.do(lambda chrome: chrome.set_script_timeout(30))
    found = await browser.do(
        lambda chrome: chrome.execute_async_script("const done = arguments[0]; axe.run().then(done)")
    )
    return [
        f"{each['id']}: {each['help']}: {[node['html'] for node in each['nodes']][:3]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def _axe() -> str:
    folder = _ROOT / ".cache" / _AXE
    file = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not file.exists():
        command = ["npm", "install", "--no-audit", "--no-fund", "--no-save", "--prefix", str(folder), _AXE]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    return file.read_text(encoding="utf-8")
