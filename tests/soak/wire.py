"""A relay between Sidefetch and the brokers that injects network faults.

Unlike ``tests.tap`` it decodes nothing; like it, it works beside tests of any kind, here as trio in one thread.
"""

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Final, Self

import attrs
import trio

__all__ = ["CLEAR", "Weather", "Wire"]

_CHUNK_BYTES: Final = 64 * 1024
_CONNECT_S: Final = 5.0
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER of zero: closing resets the connection, and unsent data is dropped."""


@attrs.frozen
class Weather:
    """The present condition of all connections, in both directions."""

    latency_s: float = 0.0
    bytes_per_s: float = float("inf")
    is_stalled: bool = False
    """Nothing passes; all of it does later."""
    cut_after_bytes: int = 0
    """Every connection is reset when it has passed some bytes, at most so many, mostly within a frame; 0: never."""


CLEAR: Final = Weather()


@attrs.define(eq=False)
class _Connection:
    client: trio.SocketStream
    broker: trio.SocketStream
    scope: trio.CancelScope
    is_deaf: bool = False
    left_bytes: int | None = None

    def reset(self) -> None:
        for stream in (self.client, self.broker):
            with contextlib.suppress(OSError):
                stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            stream.socket.close()
        self.scope.cancel()


class Wire:
    """Listen on each port of *routes* and forward to its address, while in context.

    Its methods may be called from any other thread.
    """

    def __init__(self, routes: Mapping[int, tuple[str, int]], *, seed: int = 0, host: str = "127.0.0.1") -> None:
        self._routes = dict(routes)
        self._host = host
        self._random = random.Random(seed)
        self._weather = CLEAR
        self._changed: trio.Event
        self._connections: set[_Connection] = set()
        self._up = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._all: trio.CancelScope | None = None
        self._thread = threading.Thread(target=trio.run, args=(self._run,), name="wire", daemon=True)
        self.reset_count = 0
        """Connections that it has reset."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{self._host}:{port}" for port in self._routes)

    @property
    def connections(self) -> int:
        """The number of connections."""
        return len(self._connections)

    @contextlib.contextmanager
    def weather(self, weather: Weather) -> Iterator[None]:
        """Have it so while in context."""
        self._do(self._become, weather)
        try:
            yield
        finally:
            self._do(self._become, CLEAR)

    def reset(self) -> None:
        """Reset all connections."""
        self._do(self._reset, lambda _: True)

    @contextlib.contextmanager
    def deaf(self) -> Iterator[None]:
        """Let the connections that there are be half open while in context, then reset them; new ones are well."""
        self._do(self._deafen)
        try:
            yield
        finally:
            self._do(self._reset, lambda each: each.is_deaf)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._up.wait(10):
            raise RuntimeError("the wire does not listen")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        assert self._all is not None
        with contextlib.suppress(trio.RunFinishedError):
            self._do(self._all.cancel)
        self._thread.join(10)

    # ------------------------------------------------------------------------------------- within the thread

    def _do(self, act: Callable[..., None], *arguments: object) -> None:
        assert self._token is not None, "not in context"
        trio.from_thread.run_sync(act, *arguments, trio_token=self._token)

    def _become(self, weather: Weather) -> None:
        self._weather = weather
        for each in self._connections:
            each.left_bytes = self._lifetime()
        self._changed.set()
        self._changed = trio.Event()

    def _lifetime(self) -> int | None:
        most = self._weather.cut_after_bytes
        return self._random.randrange(1, most + 1) if most else None

    def _deafen(self) -> None:
        for each in self._connections:
            each.is_deaf = True

    def _reset(self, which: Callable[[_Connection], bool]) -> None:
        for each in [each for each in self._connections if which(each)]:
            self._connections.discard(each)
            self.reset_count += 1
            each.reset()

    async def _run(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._changed = trio.Event()
        with trio.CancelScope() as self._all:
            async with trio.open_nursery() as nursery:
                for port, (host, broker_port) in self._routes.items():
                    listeners = await trio.open_tcp_listeners(port, host=self._host)
                    nursery.start_soon(self._accept, listeners, host, broker_port)
                self._up.set()

    async def _accept(self, listeners: list[trio.SocketListener], host: str, port: int) -> None:
        async def serve(client: trio.SocketStream) -> None:
            async with client:
                broker: trio.SocketStream | None = None
                with trio.move_on_after(_CONNECT_S), contextlib.suppress(OSError):
                    broker = await trio.open_tcp_stream(host, port)
                if broker is not None:
                    async with broker:
                        await self._serve(client, broker)

        await trio.serve_listeners(serve, listeners)

    async def _serve(self, client: trio.SocketStream, broker: trio.SocketStream) -> None:
        with trio.CancelScope() as scope:
            connection = _Connection(client, broker, scope, left_bytes=self._lifetime())
            self._connections.add(connection)
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._pump, connection, client, broker)
                    nursery.start_soon(self._pump, connection, broker, client)
            finally:
                self._connections.discard(connection)

    async def _pump(self, connection: _Connection, source: trio.SocketStream, sink: trio.SocketStream) -> None:
        """Forward until either end goes, then end both: Kafka knows no half-closed connections."""
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while chunk := await source.receive_some(_CHUNK_BYTES):
                await self._hold(len(chunk))
                if connection.is_deaf:
                    await trio.sleep_forever()
                if connection.left_bytes is not None:
                    passing = chunk[: connection.left_bytes]
                    connection.left_bytes -= len(passing)
                    await sink.send_all(passing)
                    if not connection.left_bytes:
                        self._reset(lambda each: each is connection)
                else:
                    await sink.send_all(chunk)
        if connection.is_deaf:
            await trio.sleep_forever()  # its end is not heard of either
        connection.scope.cancel()

    async def _hold(self, size: int) -> None:
        await trio.sleep(self._weather.latency_s + size / self._weather.bytes_per_s)
        while self._weather.is_stalled:
            await self._changed.wait()
