"""Asks over HTTPS what carries a secret, so that the secret goes to that server and nowhere else.

Imports what takes megabytes; to be imported where it is needed, by few.
"""

import ssl
from typing import Any
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

__all__ = ["get_body"]


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def get_body(
    request: Request, tls: ssl.SSLContext, timeout_s: float, *, most_bytes: int, through_proxy: bool
) -> bytes:
    """The answer's body. Blocking, for a thread.

    Args:
        timeout_s:     for each step of the conversation, not for all of it.
        through_proxy: whether by that of the environment, if it names one.
    Raises:
        HTTPError: another status than success, redirects among them; to be read and closed by the caller.
        URLError, OSError, http.client.HTTPException: it was not reached, or broke off.
        ValueError: the body has more than *most_bytes*.
    """
    handlers: list[Any] = [HTTPSHandler(context=tls), _NoRedirects]
    if not through_proxy:
        handlers.append(ProxyHandler({}))
    with build_opener(*handlers).open(request, timeout=timeout_s) as answer:
        body: bytes = answer.read(most_bytes + 1)
    if len(body) > most_bytes:
        raise ValueError(f"what was answered has more than {most_bytes} bytes")
    return body
