"""The request for an OAuth access token by client credentials (RFC 6749, 4.4). Blocking, for a thread."""

import base64
import http.client
import json
import ssl
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote_plus, urlencode
from urllib.request import Request

from proxy.errors import BrokerUnavailable
from proxy.net.io.https_client import get_body

__all__ = ["request_token"]

_TIMEOUT_S: Final = 5.0
"""The time limit of each step, in seconds; below that of opening a connection."""
_MOST_BYTES: Final = 1024**2
_DEFAULT_LIFETIME_S: Final = 300.0
"""The assumed lifetime of a token, in seconds, if the server does not state one."""


def request_token(
    where: str, url: str, name: str, password: str, scope: str | None, tls: ssl.SSLContext
) -> tuple[object, float]:
    """Request an access token from the OAuth server at *url*; return the token and its lifetime in seconds.

    The token is an unchecked JSON value, usually a string. The lifetime is 300 s if the server states none.

    Args:
        where: the name of the option that has *url*; messages name it, since the URL may contain a secret.
        name:  the client id, and *password* the client secret.
        scope: the scope to request; None for the server's default.
        tls:   the TLS context for an HTTPS URL.

    Raises: BrokerUnavailable: the server cannot be reached, refuses the request, or returns no token.
    """
    form = {"grant_type": "client_credentials"} | ({} if scope is None else {"scope": scope})
    pair = f"{quote_plus(name)}:{quote_plus(password)}".encode()
    request = Request(url, urlencode(form).encode(), {"Accept": "application/json"})  # noqa: S310  # checked before
    request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(pair).decode()}")
    try:
        response = json.loads(get_body(request, tls, _TIMEOUT_S, most_bytes=_MOST_BYTES, through_proxy=True))
        return response["access_token"], float(response.get("expires_in", _DEFAULT_LIFETIME_S))
    except HTTPError as refused:
        with refused:
            why = _error_text(refused.read(_MOST_BYTES))
        remedy = "see upstream-sasl-client-id-file and upstream-sasl-client-secret-file, and upstream-sasl-scope"
        raise BrokerUnavailable(f"{where} answers {refused.code}{why}: {remedy}") from None
    except URLError as unreached:
        trust = isinstance(unreached.reason, ssl.SSLCertVerificationError)
        remedy = "name its authority by upstream-sasl-token-ca" if trust else "is it right, and reached from here?"
        raise BrokerUnavailable(f"{where} was not reached ({unreached.reason}): {remedy}") from None
    except (OSError, http.client.HTTPException) as broken:
        raise BrokerUnavailable(f"{where} broke off: {type(broken).__name__}") from None
    except (ValueError, LookupError, TypeError, AttributeError):
        raise BrokerUnavailable(f"{where} answers something else than a token") from None


def _error_text(body: bytes) -> str:
    """Return the error code (RFC 6749) of a response body in parentheses, for a message; "" if there is none."""
    try:
        return f" ({str(json.loads(body)['error'])[:60]})"
    except (ValueError, LookupError, TypeError):
        return ""
