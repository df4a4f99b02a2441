"""The client that stays, against a broker of a few bytes."""

import socket
import struct
import time

from tests.bench.follower import Follower
from tests.bench.reader import Job
from tests.bench.small_broker import answer, asked_offset, empty_batch, served_by, take

ENDS = struct.pack(">ih1sii", 1, 1, b"a", 1, 4) + struct.pack(">hqq", 0, -1, 7)
"""The ListOffsets v1 response for a-4."""


def test_a_follower_begins_at_the_end_and_notes_when_records_come() -> None:
    asked: list[bytes] = []

    def serve(broker: socket.socket) -> None:
        take(broker)
        broker.sendall(struct.pack(">ii", 4 + len(ENDS), 0) + ENDS)
        asked.append(take(broker))
        whole = answer(0, empty_batch(7, 1, time_us=55), partition=4)
        broker.sendall(whole[:30])
        time.sleep(0.05)
        broker.sendall(whole[30:])
        asked.append(take(broker))

    with served_by(serve) as address:
        follower = Follower(Job(address, {"a": 1}, first_partition=4))
        follower.ask()
        while not follower.fetches:
            follower.read()
    follower.socket.close()

    assert list(map(asked_offset, asked)) == [7, 9]
    assert follower.records == 2
    assert [made for made, _ in follower.arrivals] == [55]
