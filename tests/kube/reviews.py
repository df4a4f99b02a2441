"""The requests of an API server to a webhook."""

import base64
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from copy import deepcopy
from typing import Any

import h11
import trio

from proxy.kube.patch import Operation, apply

__all__ = ["Asking", "asking", "patched", "review"]

POD_KIND = {"group": "", "version": "v1", "kind": "Pod"}


def review(pod: Any, **request: Any) -> dict[str, Any]:
    """About a pod that is to be made."""
    asked = {"uid": "u-1", "kind": POD_KIND, "operation": "CREATE", "namespace": "shop", "object": pod, **request}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}


def patched(pod: Any, response: Mapping[str, Any]) -> Any:
    """*pod* as the API server makes it of the webhook's answer."""
    assert response["patchType"] == "JSONPatch"
    operations = [_operation(each) for each in json.loads(base64.b64decode(response["patch"]))]
    return apply(deepcopy(pod), iter(operations))


def _operation(reported: Mapping[str, Any]) -> Operation:
    steps = [step.replace("~1", "/").replace("~0", "~") for step in reported["path"].split("/")[1:]]
    return Operation(
        reported["op"], tuple(int(each) if each.isdigit() else each for each in steps), reported.get("value")
    )


class Asking:
    """One connection that is kept."""

    def __init__(self, stream: "trio.SSLStream[trio.SocketStream]") -> None:
        self.stream = stream
        self._http = h11.Connection(h11.CLIENT)

    async def __call__(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return the status and the response to a GET, or to a POST of *body*."""
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        method = "GET" if body is None else "POST"
        headers = [("Host", "webhook"), ("Content-Length", str(len(body or b"")))]
        events = [h11.Request(method=method, target=path, headers=headers)]
        data = b"".join(self._http.send(event) or b"" for event in events)
        data += self._http.send(h11.Data(data=body or b"")) or b""
        data += self._http.send(h11.EndOfMessage()) or b""
        await self.stream.send_all(data)
        return await self.answer()

    async def answer(self) -> tuple[int, bytes]:
        status, answered = 0, bytearray()
        with trio.fail_after(10):
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    self._http.receive_data(bytes(await self.stream.receive_some(65536)))
                elif isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    answered += event.data
                else:
                    return status, bytes(answered)

    async def about(self, pod: Any, **request: Any) -> dict[str, Any]:
        """The answer to a review of *pod*."""
        status, body = await self("/inject?timeout=10s", json.dumps(review(pod, **request)).encode())
        assert status == 200, body
        answered = json.loads(body)
        assert (answered["apiVersion"], answered["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        response: dict[str, Any] = answered["response"]
        assert response["uid"] == "u-1"
        return response

    @property
    def certificate(self) -> dict[str, Any]:
        """The one that was shown."""
        shown: dict[str, Any] = self.stream.getpeercert()
        return shown


@asynccontextmanager
async def asking(port: int, authorities: str, host: str = "localhost") -> AsyncIterator[Asking]:
    """A connection to the webhook on this host; *authorities* in PEM."""
    context = ssl.create_default_context(cadata=authorities)
    transport = await trio.open_tcp_stream("127.0.0.1", port)
    stream = trio.SSLStream(transport, context, server_hostname=host, https_compatible=True)
    async with stream:
        await stream.do_handshake()
        yield Asking(stream)
