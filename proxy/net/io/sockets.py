"""Frames over a connected socket, received into buffers of their own and sent without copying.

Sockets are used without trio's stream around them: a system call is tried first, and only a call that would block
waits. That saves a third of the work per call, on the path of all records.
"""

import math
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

import trio

from proxy.net.io.memory import Budget
from proxy.net.io.tls import TlsSocket
from proxy.wire.frames import QUICK_BYTES, Chunks, FrameReader, Piece

__all__ = ["FrameSocket", "Outbox", "address_text"]

_PIECES_A_CALL: Final = 256
"""The maximum number of buffers of one sendmsg call; Linux accepts up to 1,024."""
_TURNS: Final = 16
"""The number of receives that may succeed in a row before other tasks run."""
_MAKING_S: Final = 0.0005
"""The time in seconds for which chunks are produced in a row before other tasks run."""
_LOW_WATER_BYTES: Final = 1024 * 1024
"""The bytes of a large frame that must have arrived before the task wakes up, or the rest of the frame if that is
less: waking up for each segment took a fifth of the time of reading."""
_KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""TCP keep-alive in seconds: a silent host is given up after 50 s, within the minute for which most clients
wait."""


class FrameSocket:
    """One connection as a stream of frames. Leaving its ``with`` block closes it.

    With a *budget*, a large frame is read only after its memory has been granted. The buffer that is kept for the
    next frame stays claimed, and is the first to be reclaimed when a frame waits for memory: it saves time, but no
    fetches.

    Raises: OSError: the connection broke; MalformedFrame: a frame has an impossible size.
    """

    def __init__(
        self, stream: trio.SocketStream | TlsSocket, max_frame_bytes: int, budget: Budget | None = None
    ) -> None:
        """Take over the socket of *stream*; the caller must not use the stream again."""
        self._socket: socket.socket | TlsSocket
        if isinstance(stream, TlsSocket):
            self._socket = stream
        else:
            stream.socket.getpeername()  # raises after a reset, before the socket is taken over
            self._socket = socket.socket(fileno=stream.socket.detach())
            self._socket.setblocking(False)
        try:
            self.local_host: str = self._socket.getsockname()[0]
            self.peer: str = address_text(self._socket.getpeername())
        except OSError:
            self._socket.close()
            raise
        self.certified: str | None = stream.principal if isinstance(stream, TlsSocket) else None
        """The principal of the peer's certificate; None without one."""
        _keep_alive(self._socket)
        self._frames = FrameReader(max_frame_bytes)
        self._budget = budget
        self.on_large_frame: Callable[[], None] = _do_nothing
        """Called after the size field of a frame that claims memory has arrived, before the claim."""
        self.on_room: Callable[[float], None] = _ignore
        """Called with the seconds for which a frame waited for memory."""
        self.stall_s = math.inf
        """The longest time without a byte in the middle of a frame; after it ``receive`` raises TimeoutError."""
        self._turns = 0
        self._low_water = 1
        self.received_frames = 0
        self.sent_bytes = 0
        self.is_listening = False
        """Whether ``receive`` currently waits for bytes of the peer."""

    @property
    def at_boundary(self) -> bool:
        """Whether no byte of a further frame has arrived."""
        return self._frames.at_boundary

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def limit(self, max_frame_bytes: int) -> None:
        """Set the maximum size of further frames."""
        self._frames.limit(max_frame_bytes)

    def close(self) -> None:
        """Close at once; tasks that wait for the connection get trio.ClosedResourceError."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
            self._frames.drop_all()
            self._drop_spares()

    async def receive(self) -> list[memoryview]:
        """Return the next frames, one or more, without their size fields; an empty list at the end."""
        is_silent = False
        while True:
            if self._frames.needs:
                self.on_large_frame()
                await self._make_room()
            space = self._frames.space()
            try:
                size = self._socket.recv_into(space)
            except BlockingIOError:
                if is_silent:
                    raise TimeoutError(f"no byte of the rest of a frame within {self.stall_s:g} s") from None
                self._turns = 0
                self._set_low_water(len(space) if self._frames.is_in_large else 1)
                # The bytes that have arrived meanwhile may be fewer than the low-water mark, hence one more
                # attempt.
                is_silent = not await self._readable()
                continue
            is_silent = False
            if size == 0:
                return []
            self._turns += 1
            if self._turns >= _TURNS:
                self._turns = 0
                await trio.lowlevel.checkpoint()
            frames = self._frames.received(size)
            if frames:
                self.received_frames += len(frames)
                return frames

    async def _readable(self) -> bool:
        """Wait until bytes can be received; return False if ``stall_s`` passed in the middle of a frame."""
        self.is_listening = True
        try:
            if self.stall_s == math.inf or self._frames.at_boundary:
                await trio.lowlevel.wait_readable(self._socket)
                return True
            with trio.move_on_after(self.stall_s):
                await trio.lowlevel.wait_readable(self._socket)
                return True
            return False
        finally:
            self.is_listening = False

    def _set_low_water(self, wanted: int) -> None:
        """Set the low-water mark of the socket to *wanted*, or to the bound that justifies waking up."""
        low = min(wanted, _LOW_WATER_BYTES)
        if low != self._low_water and isinstance(self._socket, socket.socket):
            self._low_water = low
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)

    async def _make_room(self) -> None:
        if self._budget is None:
            self._frames.grant()
            return
        began_s = trio.current_time()
        await self._budget.admit(self._frames.needs, self._frames.grant)
        self.on_room(trio.current_time() - began_s)
        if self._budget.is_short:
            self._frames.drop_spares()
        else:
            self._budget.holding(self, -math.inf, self._drop_spares)

    def _drop_spares(self) -> None:
        self._frames.drop_spares()
        if self._budget is not None:
            self._budget.released(self)

    def try_send(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Send as much as the socket accepts without waiting, and return the number of bytes."""
        try:
            sent = self._socket.sendmsg(pieces)
        except BlockingIOError:
            return 0
        self.sent_bytes += sent
        return sent

    async def wait_writable(self) -> None:
        await trio.lowlevel.wait_writable(self._socket)

    async def send(self, pieces: Iterable[Piece]) -> None:
        """Send all of *pieces*, waiting as long as needed."""
        outbox = Outbox(self)
        outbox.put(pieces)
        await outbox.flush()


class _ResponseEnd(NamedTuple):
    """The boundary between two responses in the queue."""

    on_sent: Callable[[float], None]


class Outbox:
    """The queue of unsent buffers of one connection; sends at once as much as the socket accepts.

    Chunks are produced one at a time, after all earlier ones have been sent: a peer that does not read stops their
    production, too.
    """

    def __init__(
        self,
        connection: FrameSocket,
        on_made: Callable[[Chunks, float], None] | None = None,
        workers: trio.CapacityLimiter | None = None,
    ) -> None:
        """Create an empty queue.

        Args:
            on_made: called with each ``Chunks`` after its last chunk is produced, and its CPU seconds.
            workers: limits the threads that produce chunks.
        """
        self._workers = workers
        self._connection = connection
        self._on_made = on_made
        self._pieces: deque[memoryview | Chunks | _ResponseEnd] = deque()
        self._cpu_s = self._making_s = 0.0
        self._filled = trio.Event()
        self._drained = trio.Event()

    def put(self, pieces: Iterable[Piece], on_sent: Callable[[float], None] | None = None) -> None:
        """Send *pieces*, or queue the rest for ``pump``.

        *on_sent* is called once all of them are sent, with the seconds that waiting for their chunks took.

        Raises: OSError: the connection broke.
        """
        idle = not self._pieces
        for piece in pieces:
            if len(piece):
                self._pieces.append(memoryview(piece) if isinstance(piece, bytes) else piece)
        if on_sent is not None:
            self._pieces.append(_ResponseEnd(on_sent))
        if idle:
            while self._send_what_fits() and self._pieces:
                chunks = self._to_make()
                if len(chunks) > QUICK_BYTES:
                    break
                self._made(*_timed(chunks))
            if self._pieces:
                self._drained = trio.Event()
                self._filled.set()

    def drop(self) -> None:
        """Discard all unsent buffers."""
        self._pieces.clear()

    async def pump(self) -> None:
        """Send for ever the buffers that ``put`` has queued. Raises OSError when the connection breaks."""
        while True:
            await self._filled.wait()
            await self.flush()
            self._filled = trio.Event()

    async def flush(self) -> None:
        """Send all queued buffers, waiting as long as needed."""
        turn_ends_s = 0.0
        while self._pieces:
            if not self._send_what_fits():
                await self._connection.wait_writable()
            elif self._pieces:
                chunks, began_s = self._to_make(), trio.current_time()
                if chunks.is_quick:
                    if began_s >= turn_ends_s:
                        await trio.lowlevel.checkpoint()
                        turn_ends_s = trio.current_time() + _MAKING_S
                    made = _timed(chunks)
                else:
                    made = await trio.to_thread.run_sync(_timed, chunks, limiter=self._workers)
                self._making_s += trio.current_time() - began_s
                self._made(*made)
        self._drained.set()

    @property
    def is_empty(self) -> bool:
        """Whether all buffers are sent."""
        return not self._pieces

    async def drained(self) -> None:
        """Wait until all buffers are sent."""
        if self._pieces:
            await self._drained.wait()

    def _send_what_fits(self) -> bool:
        """Send the buffers that exist already; return False if the socket accepts no more."""
        while self._pieces:
            first = self._pieces[0]
            if isinstance(first, _ResponseEnd):
                self._pieces.popleft()
                first.on_sent(self._making_s)
                self._making_s = 0.0
                continue
            some = self._taken_made()
            if not some:
                break
            while some:
                sent = self._connection.try_send(some)
                if not sent:
                    self._pieces.extendleft(reversed(some))
                    return False
                some = _behind(sent, some)
        return True

    def _taken_made(self) -> list[memoryview]:
        """Remove and return the first buffers, up to the next ``Chunks`` or response boundary."""
        some: list[memoryview] = []
        while self._pieces and len(some) < _PIECES_A_CALL:
            piece = self._pieces.popleft()
            if not isinstance(piece, memoryview):
                self._pieces.appendleft(piece)
                break
            some.append(piece)
        return some

    def _to_make(self) -> Chunks:
        """Return the ``Chunks`` at the head of the queue; all buffers before it must be sent."""
        chunks = self._pieces[0]
        assert not isinstance(chunks, memoryview | _ResponseEnd)
        return chunks

    def _made(self, chunk: bytes | bytearray | memoryview | None, cpu_s: float) -> None:
        """Queue *chunk* of the first ``Chunks`` for sending; None ends and removes that ``Chunks``."""
        self._cpu_s += cpu_s
        if chunk is not None:
            self._pieces.appendleft(memoryview(chunk))
            return
        chunks = self._to_make()
        self._pieces.popleft()
        if self._on_made is not None:
            self._on_made(chunks, self._cpu_s)
        self._cpu_s = 0.0


def _behind(sent: int, pieces: list[memoryview]) -> list[memoryview]:
    """Return the rest of *pieces* after their first *sent* bytes."""
    for index, piece in enumerate(pieces):
        if sent < len(piece):
            return [piece[sent:], *pieces[index + 1 :]]
        sent -= len(piece)
    return []


def _timed(chunks: Chunks) -> tuple[bytes | bytearray | memoryview | None, float]:
    """Return the next chunk, and the CPU seconds for it."""
    began_s = time.thread_time()
    return chunks.next_chunk(), time.thread_time() - began_s


def _do_nothing() -> None:
    pass


def _ignore(_: float) -> None:
    pass


def _keep_alive(connected: socket.socket | TlsSocket) -> None:
    """Enable TCP keep-alive: a host that vanished before its response would otherwise go unnoticed."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        if hasattr(socket, option):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def address_text(name: tuple[str, int]) -> str:
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
