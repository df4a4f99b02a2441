"""A stand-in for a Service of Kubernetes: each connection goes to a ready pod, and stays there."""

import random
from collections.abc import Iterable

import trio

from tests.soak.wire import Wire

__all__ = ["Service"]


class Service(Wire):
    """Listen on 127.0.0.1 at *ports*, and forward new connections to the same port of one of ``ready``."""

    def __init__(self, ports: Iterable[int]) -> None:
        super().__init__({port: ("whoever is ready", port) for port in ports})
        self.ready: tuple[str, ...] = ()
        """Addresses of pods."""

    async def _accept(self, listeners: list[trio.SocketListener], _: str, port: int) -> None:
        async def serve(client: trio.SocketStream) -> None:
            async with client:
                try:
                    pod = await trio.open_tcp_stream(random.choice(self.ready), port)
                except (IndexError, OSError):
                    return
                async with pod:
                    await self._serve(client, pod)

        await trio.serve_listeners(serve, listeners)
