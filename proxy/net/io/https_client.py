"""HTTPS requests that carry a secret, which goes to the named server only: redirects are not followed.

The imports take megabytes of memory; import this module only where it is needed.
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
    """Send *request* over HTTPS, and return the body of the response. It blocks: call it in a thread.

    Args:
        tls:           the context that verifies the server's certificate.
        timeout_s:     the limit in seconds for each network operation, not for the whole request.
        through_proxy: whether to use the HTTP proxy that the environment names, if any.

    Raises:
        HTTPError: the status is not a success, for example a redirect; the caller reads and closes the error.
        URLError, OSError, http.client.HTTPException: the server cannot be reached, or the connection broke.
        ValueError: the body has more than *most_bytes*.
    """
    handlers: list[Any] = [HTTPSHandler(context=tls), _NoRedirects]
    if not through_proxy:
        handlers.append(ProxyHandler({}))
    with build_opener(*handlers).open(request, timeout=timeout_s) as answer:
        body: bytes = answer.read(most_bytes + 1)
    if len(body) > most_bytes:
        raise ValueError(f"the response body has more than {most_bytes} bytes")
    return body
