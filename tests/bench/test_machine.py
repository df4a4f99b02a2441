"""The figures of a process."""

import os
import socket
import time

from tests.bench.machine import connections, cpu_seconds, cpu_ticks, peer_ports, resident_mib


def test_the_programs_name_does_not_shift_the_fields() -> None:
    numbers = " ".join(str(number) for number in range(1, 40))

    assert cpu_ticks(f"77 (java) S {numbers}") == 11 + 12
    assert cpu_ticks(f"77 (odd ) name) S {numbers}") == 11 + 12


def test_work_shows_as_cpu_time() -> None:
    before = cpu_seconds(os.getpid())
    deadline = time.monotonic() + 10

    while cpu_seconds(os.getpid()) < before + 0.05:
        assert time.monotonic() < deadline


def test_peak_memory_is_at_least_current_memory() -> None:
    assert resident_mib(os.getpid(), "VmHWM") >= resident_mib(os.getpid(), "VmRSS") * 0.99 > 0


def test_peer_ports_are_those_of_established_connections_of_the_given_sockets() -> None:
    rest = "00000000:00000000 00:00000000 00000000 0 0"
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        f"   0: 0100007F:1F90 0100007F:2384 01 {rest} 11 1 0\n"
        f"   1: 0100007F:1F91 0100007F:2384 01 {rest} 12 1 0\n"
        f"   2: 0100007F:1F92 00000000:0000 0A {rest} 13 1 0\n"
        f"   3: 00000000000000000000000000000000:1F93 0000000000000000FFFF00000100007F:2385 01 {rest} 14 1 0\n"
        f"   4: 0100007F:1F94 0100007F:2384 01 {rest} 15 1 0\n"
    )

    assert list(peer_ports(table, {"11", "13", "14", "15"})) == [0x2384, 0x2385, 0x2384]


def test_connections_of_a_process_are_counted_by_the_port_of_the_peer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), socket.create_connection(("127.0.0.1", port)):
            assert connections(os.getpid())[port] == 2
