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
    """The failure of a request to the Kubernetes API, which the caller may try again."""

    what: str
    """The request and the reason."""
    code: int = 0
    """The status code of the response; 0 without a response."""

    def __str__(self) -> str:
        return self.what


@attrs.frozen
class Api:
    """A client of the Kubernetes API, with this pod's service account; requests run in threads.

    Raises: ApiFailed, by each method except ``of_this_pod``: the request failed.
    """

    url: str
    account: Path
    """The folder with the token, which is read each time, because Kubernetes renews it."""

    @classmethod
    def of_this_pod(cls, environ: Mapping[str, str], account: Path = SERVICE_ACCOUNT) -> "Api | None":
        """Return a client for the cluster whose pod this process runs in, by the environment; None outside of pods.

        Args: account: the folder of the service account's token, CA and namespace.
        """
        api = api_address(environ)
        return None if api is None else cls(f"https://{api}", account)

    def namespace(self) -> str:
        """Return the namespace of this pod, from the service account's folder. Raises: ApiFailed: it has none."""
        try:
            return (self.account / "namespace").read_text(encoding="ascii").strip()
        except (OSError, ValueError) as wrong:
            raise ApiFailed(f"no service account in {self.account}: {wrong}") from None

    async def get(self, path: str) -> dict[str, Any]:
        """Return the decoded object at *path*, such as ``/api/v1/namespaces/kafka/secrets/cert``.

        Raises: ApiFailed: for example, there is none.
        """
        return await self._request("GET", path)

    async def merge(self, path: str, change: Mapping[str, Any]) -> None:
        """Change the object at *path* by the merge patch *change* (RFC 7396).

        With a resourceVersion in *change*, the request fails if the object has changed since.

        Raises: ApiFailed: with status code 409 in that case.
        """
        await self._request("PATCH", path, change, "application/merge-patch+json")

    async def patch(self, path: str, operations: list[dict[str, Any]]) -> None:
        """Change the object at *path* by the JSON Patch *operations* (RFC 6902): by all of them or none.

        Raises: ApiFailed: with status code 422 if a ``test`` operation fails.
        """
        await self._request("PATCH", path, operations, "application/json-patch+json")

    async def _request(self, method: str, path: str, body: Any = None, content_type: str = "") -> dict[str, Any]:
        return await trio.to_thread.run_sync(self._send, method, path, body, content_type, abandon_on_cancel=True)

    def _send(self, method: str, path: str, body: Any, content_type: str) -> dict[str, Any]:
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
    """Return the API's error message from the body of the response, or the HTTP reason if it has none."""
    try:
        return str(json.loads(refused.read(_MOST_BYTES))["message"])
    except (OSError, ValueError, LookupError, TypeError, http.client.HTTPException):
        return refused.reason
