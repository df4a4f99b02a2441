"""The client with a pace, against a broker of a few bytes."""

import socket
import time

import pytest

from tests.bench.paced import Pace, run
from tests.bench.small_broker import answer, asked_offset, empty_batch, served_by, take


def test_each_fetch_requests_next_record_and_is_timed_from_its_send() -> None:
    asked: list[int] = []

    def serve(broker: socket.socket) -> None:
        for number in range(3):
            asked.append(asked_offset(take(broker)))
            time.sleep(0.03 if number == 1 else 0)
            broker.sendall(answer(number, empty_batch(asked[-1], 0)))

    with served_by(serve) as address:
        times = run(Pace(address, "a", fetches=3, per_s=100))

    assert asked == [0, 1, 2]
    assert times.seconds >= 0.01 + 0.03  # the second is sent when it is due, the third as soon as it can be
    assert times.waits_us[1] >= 30_000 > times.waits_us[0]


def test_offsets_wrap_around_within_available_records() -> None:
    asked: list[int] = []

    def serve(broker: socket.socket) -> None:
        for number in range(4):
            asked.append(asked_offset(take(broker)))
            broker.sendall(answer(number, empty_batch(asked[-1], 0)))

    with served_by(serve) as address:
        run(Pace(address, "a", fetches=4, per_s=1000, step=3))

    assert asked == [0, 3, 2, 1]


def test_response_without_requested_record_raises_connection_error() -> None:
    def serve(broker: socket.socket) -> None:
        take(broker)
        broker.sendall(answer(0, b""))

    with served_by(serve) as address, pytest.raises(ConnectionError, match="answer 0 to request 0"):
        run(Pace(address, "a", fetches=1, per_s=100))
