"""Thousands of clients that fetch the same idle partitions all the time, each on its own connection.

``python -m tests.bench.idlers`` runs them in one process with the standard library alone; ``load`` sends it
commands.
Their first fetches do not wait at the broker, so that the time of the last one can be measured.
"""

import json
import resource
import selectors
import socket
import struct
import sys
import time
from dataclasses import replace

from tests.bench.reader import Asking, Connection, Job

_HEAD = struct.Struct(">iiih")
"""The head of a response: size, correlation id, throttle time, error."""
_CORRELATION_ID = 0
"""The correlation id of all fetches, so that all have the same bytes."""


class Idler:
    """One of them; ``read`` never waits for an answer that has not begun."""

    def __init__(self, address: str) -> None:
        self.socket: socket.socket = Connection(address).socket
        self.socket.settimeout(None)  # else nothing waits for all of an answer's head
        self.answers = 0
        self._lacks = 0
        """Bytes of an answer that has begun."""

    def read(self, buffer: bytearray) -> bool:
        """Read the available bytes; return whether a response is complete."""
        if not self._lacks:
            head = self.socket.recv(_HEAD.size, socket.MSG_WAITALL)
            if len(head) < _HEAD.size:
                raise ConnectionError("closed instead of an answer")
            size, correlation_id, _, error = _HEAD.unpack(head)
            if error or correlation_id != _CORRELATION_ID:
                raise ConnectionError(f"answer {correlation_id}, error {error}")
            self._lacks = size + 4 - len(head)
        count = self.socket.recv_into(memoryview(buffer)[: self._lacks])
        if not count:
            raise ConnectionError("closed in the middle of an answer")
        self._lacks -= count
        self.answers += not self._lacks
        return not self._lacks


def fetches(job: Job, clients: int, *, own_ids: bool) -> list[tuple[bytes, bytes]]:
    """Return the first fetch of each client, which does not wait, and all later ones."""

    def of(client_id: str) -> tuple[bytes, bytes]:
        later = replace(job, client_id=client_id)
        first, again = (
            bytes(Asking(each).frame(_CORRELATION_ID)) for each in (replace(later, max_wait_ms=0), later)
        )
        return first, again

    if own_ids:
        return [of(f"{job.client_id}-{number}") for number in range(clients)]
    return [of(job.client_id)] * clients


def poll(job: Job, clients: int, *, own_ids: bool) -> dict[str, float]:
    """Say ``ready`` once all are served; go on until standard input has a line; return the time and the counts."""
    frames = fetches(job, clients, own_ids=own_ids)
    buffer = bytearray(1 << 16)
    began_s = time.monotonic()
    idlers = [Idler(job.address) for _ in range(clients)]
    again = {idler: later for idler, (_, later) in zip(idlers, frames, strict=True)}
    unserved = set(idlers)
    served_s = 0.0
    served_answers = 0
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin, selectors.EVENT_READ)
        for idler, (first, _) in zip(idlers, frames, strict=True):
            selector.register(idler.socket, selectors.EVENT_READ, idler)
            idler.socket.sendall(first)
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    answers = sum(each.answers for each in idlers)
                    return {"served_s": served_s, "served_answers": served_answers, "answers": answers}
                if key.data.read(buffer):
                    key.data.socket.sendall(again[key.data])
                    if key.data in unserved:
                        unserved.remove(key.data)
                        if not unserved:
                            served_s = time.monotonic() - began_s
                            served_answers = sum(each.answers for each in idlers)
                            print("ready", flush=True)


if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    spec = json.loads(sys.stdin.readline())
    print(json.dumps(poll(Job(**spec["job"]), spec["clients"], own_ids=spec["own_ids"])))
