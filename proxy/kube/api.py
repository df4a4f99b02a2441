"""A client of the Kubernetes API for use in a pod, with the token and the CA of the service account."""

import http.client
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import Request

import attrs
import trio

from proxy.errors import ProxyError
from proxy.net.io.https_client import get_body
from proxy.net.kubernetes import SERVICE_ACCOUNT, api_address, read_credentials

__all__ = ["Api", "ApiFailed"]

_STEP_S: Final = 5.0
_MOST_BYTES: Final = 4 * 1024**2


@attrs.frozen
class ApiFailed(ProxyError):
    """A request to the Kubernetes API failed; it may be tried again."""

    what: str
    code: int = 0
    """The status code of the response; 0 without a response."""

    def __str__(self) -> str:
        return self.what


@attrs.frozen
class Api:
    """The Kubernetes API; requests run in threads, and each call raises ApiFailed."""

    url: str
    account: Path
    """The folder with the token, which is read each time, because Kubernetes renews it."""

    @classmethod
    def of_this_pod(cls, environ: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> "Api | None":
        """Return the API for the pod that this process runs in; None outside of pods."""
        api = api_address(environ)
        return None if api is None else cls(f"https://{api}", account)

    def namespace(self) -> str:
        """Return the namespace of this pod. Raises: ApiFailed."""
        try:
            return (self.account / "namespace").read_text(encoding="ascii").strip()
        except (OSError, ValueError) as wrong:
            raise ApiFailed(f"no service account in {self.account}: {wrong}") from None

    async def get(self, path: str) -> dict[str, Any]:
        """Return the object at *path*."""
        return await self._ask("GET", path)

    async def merge(self, path: str, change: Mapping[str, Any]) -> None:
        """Change the object at *path* by a merge patch (RFC 7396).

        With a resourceVersion in *change*, the request fails if the object has changed since.
        """
        await self._ask("PATCH", path, change, "application/merge-patch+json")

    async def patch(self, path: str, operations: list[dict[str, Any]]) -> None:
        """Change the object at *path* by a JSON Patch (RFC 6902)."""
        await self._ask("PATCH", path, operations, "application/json-patch+json")

    async def _ask(self, method: str, path: str, body: Any = None, content_type: str = "") -> dict[str, Any]:
        return await trio.to_thread.run_sync(self._asked, method, path, body, content_type, abandon_on_cancel=True)

    def _asked(self, method: str, path: str, body: Any, content_type: str) -> dict[str, Any]:
        what = f"{method} {path}"
        try:
            token, tls = read_credentials(self.account)
        except (OSError, ValueError) as wrong:
            raise ApiFailed(f"no service account in {self.account}: {wrong}") from None
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"Accept": "application/json"}, method=method)  # noqa: S310
        if content_type:
            request.add_header("Content-Type", content_type)
        request.add_unredirected_header("Authorization", f"Bearer {token}")
        try:
            answer = get_body(request, tls, _STEP_S, most_bytes=_MOST_BYTES, through_proxy=False)
            thing: dict[str, Any] = json.loads(answer)
        except HTTPError as refused:
            with refused:
                raise ApiFailed(f"{what}: {refused.code} {_message(refused)}", refused.code) from None
        except URLError as unreached:
            raise ApiFailed(f"{what}: not reached: {unreached.reason}") from None
        except (OSError, ValueError, http.client.HTTPException) as broken:
            raise ApiFailed(f"{what}: {type(broken).__name__}: {broken}") from None
        return thing


def _message(refused: HTTPError) -> str:
    """Return the API's error message."""
    try:
        return str(json.loads(refused.read(_MOST_BYTES))["message"])
    except (OSError, ValueError, LookupError, TypeError, http.client.HTTPException):
        return refused.reason
