"""``sidefetch top``: show the status of a running Sidefetch in a terminal."""

import argparse
import http.client
import json
import time
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, build_opener

from proxy.cli.extras import require_top_extra
from proxy.cli.options import Commands
from proxy.errors import ConfigError

__all__ = ["add_to"]

_URL: Final = "http://127.0.0.1:9080"
_TIMEOUT_S: Final = 5.0
_MOST_BYTES: Final = 16 * 1024**2


def add_to(commands: Commands) -> None:
    """Add the subcommand ``top`` with its flags to *commands*, the subparsers of argparse.

    It sets ``run`` in the parsed arguments to the function that executes the command and returns the exit code.
    """
    parser = commands.add_parser(
        "top",
        help="show the status of a running Sidefetch",
        description="Show the figures of a running Sidefetch's status page until Ctrl-C. It must run with"
        " --admin-listen; if it runs on another host, forward that port to this host, or see --admin-open.",
        usage="sidefetch top [URL] [--once]",
        allow_abbrev=False,
    )
    parser.add_argument(
        "url", metavar="URL", nargs="?", default=_URL, help=f"its --admin-listen as a URL [default: {_URL}]"
    )
    parser.add_argument("--once", action="store_true", help="show it once, and exit")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    url = _check_url(arguments.url)
    with require_top_extra():
        from rich.console import Console
        from rich.live import Live

        from proxy.cli.screen import draw_screen
    console = Console()
    try:
        document = _get_document(url)
        if arguments.once:
            console.print(draw_screen(document))
            return 0
        with Live(draw_screen(document), console=console, screen=console.is_terminal, auto_refresh=False) as live:
            while True:
                time.sleep(1)
                failed = ""
                try:
                    document = _get_document(url)
                except _NoDocumentError as wrong:
                    failed = str(wrong)
                live.update(draw_screen(document, failed), refresh=True)
    except _NoDocumentError as wrong:
        console.print(f"{url}: {wrong}", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        return 0


class _NoDocumentError(Exception):
    """A failure to get the status document; the message is the reason."""


def _check_url(url: str) -> str:
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"URL: {url!r} is no HTTP or HTTPS URL; accepted: such as {_URL}")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _get_document(url: str) -> Any:
    try:
        with build_opener(ProxyHandler({})).open(f"{url}/api/v1/state", timeout=_TIMEOUT_S) as answer:
            document = json.loads(answer.read(_MOST_BYTES))
    except HTTPError as wrong:
        with wrong:
            raise _NoDocumentError(f"{wrong.code}: {wrong.read(500).decode(errors='replace').strip()}") from None
    except (OSError, http.client.HTTPException, ValueError) as wrong:
        raise _NoDocumentError(str(getattr(wrong, "reason", wrong)) or type(wrong).__name__) from None
    if not isinstance(document, dict) or "minutes" not in document:
        raise _NoDocumentError("the response is not the status of a Sidefetch")
    return document
