"""Kafka frames over a connected socket; large ones are not copied, neither when received nor when sent.

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

from proxy.net.io.memory import Account, Budget
from proxy.net.io.tls import TlsSocket
from proxy.wire.frames import QUICK_BYTES, Chunks, FrameReader, Piece, SizeCheck

__all__ = ["FrameSocket", "Outbox", "address_text", "host_of"]

_PIECES_A_CALL: Final = 256
"""The maximum number of buffers of one sendmsg call; Linux accepts up to 1,024."""
_TURNS: Final = 16
"""The number of receives that may succeed in a row before other tasks run."""
_COMPUTE_S: Final = 0.0005
"""The time in seconds for which chunks are produced in a row before other tasks run."""
_LOW_WATER_BYTES: Final = 1024 * 1024
"""The bytes of a large frame that must have arrived before the task wakes up, or the rest of the frame if that is
less: waking up for each segment took a fifth of the time of reading."""
_KEEP_ALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""TCP keep-alive in seconds: a silent host is given up after 50 s, within the minute for which most clients
wait."""


class FrameSocket:
    """A connection that receives and sends Kafka frames, in plaintext or over TLS; a ``with`` block closes it.

    With a memory budget, the part of a frame beyond 64 KiB is received only after its memory was claimed, in steps
    as it arrives. Buffers that are kept for the next frames stay claimed, and are the first that the budget
    reclaims: to lose them costs time, but no fetches.

    Raises: OSError: from any method that receives or sends: the connection broke.
    """

    def __init__(
        self,
        stream: trio.SocketStream | TlsSocket,
        max_frame_bytes: int,
        budget: Budget | None = None,
        check_size: SizeCheck | None = None,
    ) -> None:
        """Take over the socket of *stream*; the caller must not use the stream again.

        Args:
            max_frame_bytes: the maximum size of a received frame.
            budget:          the budget that received frames claim their memory from; None for no limit.
            check_size:      called for each frame of over 16 KiB; ``receive`` raises its errors.

        Raises: OSError: the peer has reset the connection.
        """
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
        self.principal: str | None = stream.principal if isinstance(stream, TlsSocket) else None
        """The principal of the peer's certificate; None without one."""
        _enable_keep_alive(self._socket)
        self._frames = FrameReader(max_frame_bytes, check_size)
        self._budget = budget
        self._account = Account() if budget is None else budget.open_account(host_of(self.peer))
        self.on_large_frame: Callable[[], None] = _do_nothing
        """Called after the size field of a frame of over 16 KiB has arrived, before memory is claimed for it."""
        self._large_frames = 0
        """The number of large frames for which it was called."""
        self.on_memory_claimed: Callable[[float], None] = _ignore
        """Called with the seconds for which a frame waited for memory."""
        self.stall_s = math.inf
        """The longest time without a byte in the middle of a frame; after it ``receive`` raises TimeoutError."""
        self._turns = 0
        self._low_water = 1
        self.received_frames = self.received_bytes = 0
        self.sent_bytes = 0
        self.is_listening = False
        """Whether ``receive`` currently waits for bytes of the peer."""

    @property
    def at_boundary(self) -> bool:
        """Whether no frame is incomplete: no byte was received behind the frames that ``receive`` has returned."""
        return self._frames.at_boundary

    @property
    def is_in_claimed(self) -> bool:
        """Whether a frame has arrived in part that has claimed memory of the budget."""
        return self._frames.buffer is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def set_limit(self, max_frame_bytes: int) -> None:
        """Set the maximum size of further frames; ``receive`` raises FrameTooLarge for a larger one."""
        self._frames.set_limit(max_frame_bytes)

    def close(self) -> None:
        """Close the connection at once, and free its buffers; no effect if it is closed already.

        Tasks that wait in ``receive`` or ``send`` get trio.ClosedResourceError.
        """
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()
            self._frames.drop_all()
            self._drop_spares()

    async def receive(self) -> list[memoryview]:
        """Wait until at least one frame is complete, and return all complete frames without their size prefixes.

        The frames are read-only views, valid for as long as they are held.

        Returns: an empty list if the peer has closed the connection, even within a frame.
        Raises: MalformedFrame: a frame has a negative size, or is too large (FrameTooLarge); TimeoutError: no byte
            came for ``stall_s`` in the middle of a frame; OSError: the connection broke.
        """
        is_silent = False
        while True:
            if self._large_frames < self._frames.large_payloads:
                self._large_frames += 1
                self.on_large_frame()
            if self._frames.needed_bytes:
                await self._allocate()
            space = self._frames.get_space()
            try:
                size = self._socket.recv_into(space)
            except BlockingIOError:
                if is_silent:
                    raise TimeoutError(f"no byte of the rest of a frame within {self.stall_s:g} s") from None
                self._turns = 0
                self._set_low_water(len(space) if self._frames.is_in_large else 1)
                # The bytes that have arrived meanwhile may be fewer than the low-water mark, hence one more
                # attempt.
                is_silent = not await self._wait_readable()
                continue
            is_silent = False
            if size == 0:
                return []
            self._turns += 1
            if self._turns >= _TURNS:
                self._turns = 0
                await trio.lowlevel.checkpoint()
            self.received_bytes += size
            frames = self._frames.process_received(size)
            if frames:
                self.received_frames += len(frames)
                return frames

    async def _wait_readable(self) -> bool:
        """Return True once bytes can be received, and False if ``stall_s`` has passed in the middle of a frame."""
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
        """Have the socket become readable only when *wanted* bytes have arrived, or 1 MiB if that is less.

        TLS sockets ignore it.
        """
        low = min(wanted, _LOW_WATER_BYTES)
        if low != self._low_water and isinstance(self._socket, socket.socket):
            self._low_water = low
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)

    async def _allocate(self) -> None:
        frames, budget = self._frames, self._budget
        if budget is None or frames.buffer is None:
            frames.allocate()
            return
        began_s = trio.current_time()
        await budget.admit(frames.buffer, frames.needed_bytes, self._account)
        frames.allocate()
        self.on_memory_claimed(trio.current_time() - began_s)
        if budget.is_short:
            frames.drop_spares()
        else:
            budget.register_holder(self, -math.inf, self._drop_spares)

    def _drop_spares(self) -> None:
        self._frames.drop_spares()
        if self._budget is not None:
            self._budget.remove_holder(self)

    def try_send(self, pieces: Sequence[bytes | memoryview]) -> int:
        """Send bytes of up to 1,024 *pieces* without a wait; return the number of bytes, which may be 0.

        The next call must begin with the unsent rest, since TLS may have encrypted it already.

        Raises: OSError: the connection broke.
        """
        try:
            sent = self._socket.sendmsg(pieces)
        except BlockingIOError:
            return 0
        self.sent_bytes += sent
        return sent

    async def wait_writable(self) -> None:
        await trio.lowlevel.wait_writable(self._socket)

    async def send(self, pieces: Iterable[Piece]) -> None:
        """Send all of *pieces*, which are whole frames, and wait until the socket has accepted them.

        Meanwhile, no other task may send. Raises: OSError: the connection broke.
        """
        outbox = Outbox(self)
        outbox.put(pieces)
        await outbox.flush()


class _ResponseEnd(NamedTuple):
    """The end of a response in the queue of an ``Outbox``; ``on_sent`` is called once all before it is sent."""

    on_sent: Callable[[float], None]


class Outbox:
    """The send queue of one connection: it sends at once as much as the socket accepts, and queues the rest.

    It holds buffers, and ``Chunks``: bytes that are computed while they are sent, such as converted records. Each
    chunk is computed only after everything before it was sent, so that a peer that does not read stops the
    computation.
    """

    def __init__(
        self,
        connection: FrameSocket,
        on_computed: Callable[[Chunks, float], None] | None = None,
        workers: trio.CapacityLimiter | None = None,
    ) -> None:
        """Create an empty queue.

        Args:
            on_computed: called when the last chunk of a ``Chunks`` has been computed, with this ``Chunks`` and the
                CPU seconds that its chunks took.
            workers:     limits the number of threads that compute chunks.
        """
        self._workers = workers
        self._connection = connection
        self._on_computed = on_computed
        self._pieces: deque[memoryview | Chunks | _ResponseEnd] = deque()
        self._cpu_s = self._computing_s = 0.0
        self._filled = trio.Event()
        self._drained = trio.Event()

    def put(self, pieces: Iterable[Piece], on_sent: Callable[[float], None] | None = None) -> None:
        """Queue *pieces*, and send at once as much of the queue as the socket accepts; ``pump`` sends the rest.

        It does not wait. *on_sent* is called once the socket has accepted all of *pieces*, with the number of
        seconds for which sending them waited for the computation of chunks.

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
                chunks = self._first_chunks()
                if len(chunks) > QUICK_BYTES:
                    break
                self._add_chunk(*_compute_chunk(chunks))
            if self._pieces:
                self._drained = trio.Event()
                self._filled.set()

    def drop(self) -> None:
        """Discard everything that is queued, and free its memory; for a connection that is being closed."""
        self._pieces.clear()

    async def pump(self) -> None:
        """Send, for ever, the rest that ``put`` has queued, whenever the socket accepts more.

        One task for each outbox runs it. Raises: OSError: the connection broke.
        """
        while True:
            await self._filled.wait()
            await self.flush()
            self._filled = trio.Event()

    async def flush(self) -> None:
        """Send everything that is queued, waiting as long as needed; for an outbox without a ``pump`` task.

        Raises: OSError: the connection broke.
        """
        turn_ends_s = 0.0
        while self._pieces:
            if not self._send_what_fits():
                await self._connection.wait_writable()
            elif self._pieces:
                chunks, began_s = self._first_chunks(), trio.current_time()
                if chunks.is_quick:
                    if began_s >= turn_ends_s:
                        await trio.lowlevel.checkpoint()
                        turn_ends_s = trio.current_time() + _COMPUTE_S
                    made = _compute_chunk(chunks)
                else:
                    made = await trio.to_thread.run_sync(_compute_chunk, chunks, limiter=self._workers)
                self._computing_s += trio.current_time() - began_s
                self._add_chunk(*made)
        self._drained.set()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is queued: the socket has accepted all bytes."""
        return not self._pieces

    async def wait_until_empty(self) -> None:
        """Wait until the queue is empty: until ``pump``, in another task, has sent everything."""
        if self._pieces:
            await self._drained.wait()

    def _send_what_fits(self) -> bool:
        """Send the queued buffers up to the first ``Chunks``; return False if the socket accepts no more.

        Calls ``on_sent`` of each response that is sent completely.
        """
        while self._pieces:
            first = self._pieces[0]
            if isinstance(first, _ResponseEnd):
                self._pieces.popleft()
                first.on_sent(self._computing_s)
                self._computing_s = 0.0
                continue
            some = self._take_buffers()
            if not some:
                break
            while some:
                sent = self._connection.try_send(some)
                if not sent:
                    self._pieces.extendleft(reversed(some))
                    return False
                some = _rest_after(sent, some)
        return True

    def _take_buffers(self) -> list[memoryview]:
        """Remove and return the first buffers, up to the next ``Chunks`` or response boundary."""
        some: list[memoryview] = []
        while self._pieces and len(some) < _PIECES_A_CALL:
            piece = self._pieces.popleft()
            if not isinstance(piece, memoryview):
                self._pieces.appendleft(piece)
                break
            some.append(piece)
        return some

    def _first_chunks(self) -> Chunks:
        """Return the ``Chunks`` at the head of the queue; all buffers before it must be sent."""
        chunks = self._pieces[0]
        assert not isinstance(chunks, memoryview | _ResponseEnd)
        return chunks

    def _add_chunk(self, chunk: bytes | bytearray | memoryview | None, cpu_s: float) -> None:
        """Put *chunk* of the first ``Chunks`` in front of the queue; None: remove this ``Chunks``, which has ended.

        *cpu_s* is the CPU time in seconds for this chunk.
        """
        self._cpu_s += cpu_s
        if chunk is not None:
            self._pieces.appendleft(memoryview(chunk))
            return
        chunks = self._first_chunks()
        self._pieces.popleft()
        if self._on_computed is not None:
            self._on_computed(chunks, self._cpu_s)
        self._cpu_s = 0.0


def _rest_after(sent: int, pieces: list[memoryview]) -> list[memoryview]:
    """Return the rest of *pieces* after their first *sent* bytes."""
    for index, piece in enumerate(pieces):
        if sent < len(piece):
            return [piece[sent:], *pieces[index + 1 :]]
        sent -= len(piece)
    return []


def _compute_chunk(chunks: Chunks) -> tuple[bytes | bytearray | memoryview | None, float]:
    """Compute the next chunk; return it, or None after the last, and the CPU time in seconds that it took."""
    began_s = time.thread_time()
    return chunks.next_chunk(), time.thread_time() - began_s


def _do_nothing() -> None:
    pass


def _ignore(_: float) -> None:
    pass


def _enable_keep_alive(connected: socket.socket | TlsSocket) -> None:
    """Enable TCP keep-alive: a host that vanished before its response would otherwise go unnoticed."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEP_ALIVE.items():
        if hasattr(socket, option):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def address_text(name: tuple[str, int]) -> str:
    host, port = name[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_of(peer: str) -> str:
    """Return the host of *peer*, the text of an address and port; a client can choose only the port."""
    return peer.rpartition(":")[0]
