"""Ports of loopback that are free now and that no outgoing connection will take by chance."""

import random
import socket

__all__ = ["free_port_range", "free_ports"]

_FIRST, _LAST = 15_000, 32_000
"""Below every usual range of ephemeral ports (Linux: from 32768; others: from 49152)."""


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port_range(count: int) -> int:
    """Return the first of *count* ports in a row, all free; random, so that concurrent runs seldom meet."""
    for _ in range(1_000):
        first = random.randrange(_FIRST, _LAST - count)
        if all(_is_free(port) for port in range(first, first + count)):
            return first
    raise RuntimeError(f"no {count} free ports in a row from {_FIRST} to {_LAST}")


def free_ports(count: int) -> list[int]:
    """Return *count* different free ports."""
    first = free_port_range(count)
    return list(range(first, first + count))
