"""The status page: one file, with a security policy for browsers.

The policy permits its script and its style by their digests, and nothing else: no other script, no other host, no
frame.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import attrs

__all__ = ["StatusPage", "read_page"]

_FILE: Final = Path(__file__).with_name("page.html")
_INLINE: Final = re.compile(rb"<(script|style)>(.*?)</\1>", re.DOTALL)


@attrs.frozen
class StatusPage:
    """The status page as an HTTP response: its HTML and its headers."""

    html: bytes
    headers: Mapping[str, str]


@cache
def read_page() -> StatusPage:
    """Return the status page from the file ``page.html``, and the headers that permit only its script and style.

    The first call waits for the disk; later calls return the same object.
    """
    html = _FILE.read_bytes()
    digests: dict[str, list[str]] = {"script": [], "style": []}
    for kind, text in _INLINE.findall(html):
        digests[kind.decode()].append(f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'")
    policy = {
        "default-src": "'none'",
        "script-src": " ".join(digests["script"]),
        "style-src": " ".join(digests["style"]),
        "connect-src": "'self'",
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
    }
    headers = {
        "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in policy.items()),
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
    }
    return StatusPage(html, headers)
