"""The client that stays, against a broker of a few bytes."""

import socket
import struct
import threading
import time

from tests.bench.follower import Follower
from tests.bench.reader import Job

ENDS = struct.pack(">ih1sii", 1, 1, b"a", 1, 4) + struct.pack(">hqq", 0, -1, 7)
"""Of a-4, as ListOffsets v1 answers."""


def answer(correlation_id: int, records: bytes) -> bytes:
    """Fetch v11's, of a-4."""
    body = struct.pack(">iihii", correlation_id, 0, 0, 0, 1) + struct.pack(">h1si", 1, b"a", 1)
    body += struct.pack(">ihqqqiii", 4, 0, 9, 9, 0, -1, -1, len(records)) + records
    return struct.pack(">i", len(body)) + body


def batch(base: int, delta: int, time_us: int) -> bytes:
    return struct.pack(">qiibIhiq", base, 61 - 12, 0, 2, 0, 0, delta, time_us) + bytes(26)


def take(broker: socket.socket) -> bytes:
    """One request, whole."""
    (size,) = struct.unpack(">i", broker.recv(4, socket.MSG_WAITALL))
    return broker.recv(size, socket.MSG_WAITALL)


def test_a_follower_begins_at_the_end_and_notes_when_records_come() -> None:
    asked: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        broker, _ = listener.accept()
        with broker:
            take(broker)
            broker.sendall(struct.pack(">ii", 4 + len(ENDS), 0) + ENDS)
            asked.append(take(broker))
            whole = answer(0, batch(7, 1, time_us=55))
            broker.sendall(whole[:30])
            time.sleep(0.05)
            broker.sendall(whole[30:])
            asked.append(take(broker))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, args=(listener,))
        serving.start()
        port = listener.getsockname()[1]
        follower = Follower(Job(f"127.0.0.1:{port}", {"a": 1}, first_partition=4))
        follower.ask()
        while not follower.fetches:
            follower.read()
        serving.join(10)
        follower.socket.close()

    assert [struct.unpack_from(">q", each, len(each) - 26)[0] for each in asked] == [7, 9]
    assert follower.records == 2
    assert [made for made, _ in follower.arrivals] == [55]
