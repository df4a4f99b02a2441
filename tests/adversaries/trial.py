"""One trial: honest clients of a whole Sidefetch are measured without an attack, then during it."""

import os
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final
from urllib.request import urlopen

import attrs
import trio

from proxy.demo.client import KafkaConnection, connect
from tests.bench.frame import percentile
from tests.convert.logs import Record, batch, message
from tests.net.whole import resident_mib
from tests.sidefetch import Sidefetch

__all__ = ["MOST_MEMORY_MIB", "Felt", "Verdict", "large_topic", "try_attack"]

MOST_MEMORY_MIB: Final = 224
"""The most memory that Sidefetch may take. The chart's limit for ``--memory 64MiB`` is 304 MiB: it allows for 512
connections, and for all budgets at once."""
_SLOWER_S: Final = 0.25
"""The most that the 99th percentile of honest clients may grow by."""
_LARGE_S: Final = 5.0
"""The longest time of a large request, which may wait for memory."""
_LARGE_BYTES: Final = 512 * 1024
_ALIVE_S: Final = 1.0
_KEPT: Final = 1.2
"""The most memory that may remain 30 s after the attacker has left, relative to that before."""
_RELEASED_S: Final = 30.0
_PAUSE_S: Final = 0.02


@attrs.define
class Felt:
    """The experience of honest clients in some seconds."""

    waits_s: list[float] = attrs.field(factory=list)
    """From the moment before a record is produced until a consumer has it."""
    arrivals_s: list[float] = attrs.field(factory=list)
    """The times in which a new client connects and gets metadata."""
    large_s: list[float] = attrs.field(factory=list)
    """The times of Produce v2 requests of 512 KiB, which claim memory and are upgraded."""
    failures: list[str] = attrs.field(factory=list)
    alive_s: list[float] = attrs.field(factory=list)
    """The durations of requests to ``/livez``."""
    peak_mib: float = 0.0
    """The largest resident size of Sidefetch."""

    @property
    def p99_s(self) -> float:
        """The 99th percentile of ``waits_s``."""
        return _p99(self.waits_s)

    @property
    def arrival_p99_s(self) -> float:
        return _p99(self.arrivals_s)


@attrs.frozen
class Verdict:
    """The figures of one trial."""

    name: str
    before: Felt
    during: Felt
    rested_mib: float
    """The resident size before the attack."""
    left_mib: float
    """The smallest resident size within 30 s after it."""
    cgroup_mib: float | None = None
    """The largest size of the cgroup that Sidefetch was in; None without one."""
    kills: int = 0
    """The number of times that the kernel ended it because of the cgroup's limit."""

    @property
    def problems(self) -> list[str]:
        """The bounds that do not hold; empty if all hold."""
        during, found = self.during, []
        if during.failures:
            found.append(f"{len(during.failures)} requests failed, first: {during.failures[0]}")
        if during.p99_s > self.before.p99_s + _SLOWER_S:
            found.append(f"p99 {1e3 * during.p99_s:.0f} ms, without it {1e3 * self.before.p99_s:.0f} ms")
        if during.arrival_p99_s > self.before.arrival_p99_s + _SLOWER_S:
            found.append(f"new clients {1e3 * during.arrival_p99_s:.0f} ms")
        largest_s = max(during.large_s, default=float("inf"))
        if largest_s > _LARGE_S:
            found.append(f"a large request took {largest_s:.1f} s")
        longest_s = max(during.alive_s, default=float("inf"))
        if longest_s > _ALIVE_S:
            found.append(f"/livez took {longest_s:.1f} s")
        if during.peak_mib > MOST_MEMORY_MIB:
            found.append(f"{during.peak_mib:.0f} MiB resident, {MOST_MEMORY_MIB} allowed")
        if self.kills:
            found.append(f"the kernel ended Sidefetch, which needed over {MOST_MEMORY_MIB} MiB")
        if self.left_mib > self.rested_mib * _KEPT:
            found.append(f"{self.left_mib:.0f} MiB remain, {self.rested_mib:.0f} before")
        return found

    def as_row(self) -> dict[str, object]:
        return {
            "attack": self.name,
            "records": len(self.during.waits_s),
            "failures": len(self.during.failures),
            "p99_before_ms": round(1e3 * self.before.p99_s, 1),
            "p99_ms": round(1e3 * self.during.p99_s, 1),
            "arrival_p99_ms": round(1e3 * self.during.arrival_p99_s, 1),
            "large_ms": round(1e3 * max(self.during.large_s, default=0)),
            "livez_ms": round(1e3 * max(self.during.alive_s, default=0)),
            "rested_mib": round(self.rested_mib),
            "peak_mib": round(self.during.peak_mib),
            "left_mib": round(self.left_mib),
            "cgroup_mib": None if self.cgroup_mib is None else round(self.cgroup_mib),
            "problems": self.problems,
        }


def _p99(times_s: list[float]) -> float:
    return percentile(times_s, 99) if times_s else float("inf")


async def try_attack(
    name: str, sidefetch: Sidefetch, topic: str, admin: str, *, seconds: float, rest_s: float = _RELEASED_S
) -> Verdict:
    """Measure honest clients of *topic* for *seconds* without the attack *name*, and as long during it.

    Args: admin: the address of Sidefetch's admin listener.
          rest_s: the longest time after the attack within which memory must be free.
    """
    pid = sidefetch.process.pid
    ports = {node: f"127.0.0.1:{sidefetch.port_of(node)}" for node in (1, 2, 3)}
    address, of_large = await _leader(topic, ports), await _leader(large_topic(topic), ports)
    measure = partial(_measure, address, of_large, topic, pid, admin)
    before = await measure(partial(trio.sleep, seconds))
    rested_mib = resident_mib(pid)
    command = [sys.executable, "-m", "tests.adversaries.attacks", name, address, f"{seconds:g}"]

    async def attack() -> None:
        await trio.run_process(command, preexec_fn=_be_nice, check=True)

    during = await measure(attack)
    began_s, left_mib = time.monotonic(), resident_mib(pid)
    while left_mib > rested_mib * _KEPT and time.monotonic() < began_s + rest_s:
        await trio.sleep(0.25)
        left_mib = min(left_mib, resident_mib(pid))
    return Verdict(name, before, during, rested_mib, left_mib)


def large_topic(topic: str) -> str:
    """Return the topic of large records beside the *topic* of honest clients."""
    return f"{topic}-large"


def _be_nice() -> None:
    """Leave the processors to those that are measured: attackers bring their own."""
    os.nice(10)


async def _leader(topic: str, ports: dict[int, str]) -> str:
    """Return the address of the listener for the leader of partition 0."""
    async with connect(ports[1]) as client:
        response = await client.call("metadata", 1, {"topics": [{"name": topic}]})
        return ports[response.topics[0].partitions[0].leader_id]


async def _measure(
    address: str, of_large: str, topic: str, pid: int, admin: str, meanwhile: Callable[[], Awaitable[None]]
) -> Felt:
    felt = Felt()
    async with trio.open_nursery() as nursery:
        await nursery.start(_honest, felt, partial(_consume_old, felt, address, topic))
        await nursery.start(_honest, felt, partial(_consume_new, felt, address, topic))
        await nursery.start(_honest, felt, partial(_produce_large, felt, of_large, large_topic(topic)))
        await nursery.start(_honest, felt, partial(_arrive, felt, address, topic))
        nursery.start_soon(_look, felt, pid)
        nursery.start_soon(_probe, felt, admin)
        await nursery.start(_honest, felt, partial(_produce, address, topic))
        await meanwhile()
        nursery.cancel_scope.cancel()
    return felt


async def _honest(felt: Felt, client: Callable[..., Awaitable[None]], *, task_status: trio.TaskStatus) -> None:
    try:
        await client(task_status=task_status)
    except (OSError, AssertionError) as error:
        felt.failures.append(f"{client.func.__name__.strip('_')}: {error!r}")  # type: ignore[attr-defined]
        task_status.started()


async def _arrive(felt: Felt, address: str, topic: str, *, task_status: trio.TaskStatus) -> None:
    task_status.started()
    while True:
        began_s = time.monotonic()
        async with connect(address) as client:
            response = await client.call("metadata", 1, {"topics": [{"name": topic}]})
            _expect(response.topics[0].error_code, "metadata")
        felt.arrivals_s.append(time.monotonic() - began_s)
        await trio.sleep(5 * _PAUSE_S)


async def _look(felt: Felt, pid: int) -> None:
    while True:
        felt.peak_mib = max(felt.peak_mib, resident_mib(pid))
        await trio.sleep(0.01)


async def _probe(felt: Felt, admin: str) -> None:
    while True:
        began_s = time.monotonic()
        await trio.to_thread.run_sync(_is_alive, admin, abandon_on_cancel=True)
        felt.alive_s.append(time.monotonic() - began_s)
        await trio.sleep(0.1)


def _is_alive(admin: str) -> None:
    with urlopen(f"http://{admin}/livez", timeout=20) as response:
        assert response.status == 200


async def _produce(address: str, topic: str, *, task_status: trio.TaskStatus) -> None:
    """Produce a record with the present time every 20 ms, and wait for each acknowledgement."""
    async with connect(address) as client:
        task_status.started()
        while True:
            data = batch([Record(0, int(time.time() * 1e3), None, struct.pack(">d", time.monotonic()))])
            partitions = [{"index": 0, "records": data}]
            values = {"acks": 1, "timeout": 5000, "topic_data": [{"name": topic, "partition_data": partitions}]}
            response = await client.call("produce", 7, values)
            _expect(response.responses[0].partition_responses[0].error_code, "produce")
            await trio.sleep(_PAUSE_S)


async def _produce_large(felt: Felt, address: str, topic: str, *, task_status: trio.TaskStatus) -> None:
    """Produce a record of 512 KiB by Produce v2, which is upgraded, twice a second."""
    records, name = message(Record(0, 0, None, bytes(_LARGE_BYTES)), 1), topic.encode()
    body = struct.pack(">hhih", 0, 2, 1, 5) + b"large" + struct.pack(">hii", 1, 30_000, 1)
    body += struct.pack(">h", len(name)) + name + struct.pack(">iii", 1, 0, len(records)) + records
    async with connect(address) as client:
        task_status.started()
        while True:
            began_s = time.monotonic()
            await client.send_frame(struct.pack(">i", len(body)) + body)
            frame = await client.receive_frame()
            assert frame is not None, "the connection was closed"
            (error,) = struct.unpack_from(">h", frame, 4 + 4 + 2 + len(name) + 4 + 4)
            _expect(error, "produce v2")
            felt.large_s.append(time.monotonic() - began_s)
            await trio.sleep(0.5)


async def _end_offset(client: KafkaConnection, topic: str) -> int:
    asked = [{"partition_index": 0, "timestamp": -1}]
    values = {"replica_id": -1, "topics": [{"name": topic, "partitions": asked}]}
    response = await client.call("list_offsets", 1, values)
    return int(response.topics[0].partitions[0].offset)


async def _consume_old(felt: Felt, address: str, topic: str, *, task_status: trio.TaskStatus) -> None:
    """Read by Fetch v2, which brokers of Kafka 4 refuse and whose records are converted."""
    async with connect(address) as client:
        offset, name = await _end_offset(client, topic), topic.encode()
        task_status.started()
        while True:
            body = struct.pack(">hhih", 1, 2, 1, 3) + b"old" + struct.pack(">iii", -1, 500, 1)
            body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iiqi", 1, 0, offset, 1 << 20)
            await client.send_frame(struct.pack(">i", len(body)) + body)
            frame = await client.receive_frame()
            assert frame is not None, "the connection was closed"
            at = 4 + 4 + 4 + 2 + len(name) + 4
            _, error, _, size = struct.unpack_from(">ihqi", frame, at)
            _expect(error, "fetch v2")
            at += 18
            end = at + size
            while at + 12 <= end:
                base, length = struct.unpack_from(">qi", frame, at)
                (sent_s,) = struct.unpack_from(">d", frame, at + 12 + length - 8)
                felt.waits_s.append(time.monotonic() - sent_s)
                at, offset = at + 12 + length, base + 1


async def _consume_new(felt: Felt, address: str, topic: str, *, task_status: trio.TaskStatus) -> None:
    """Read by Fetch v11 in a fetch session."""
    async with connect(address) as client:
        offset = await _end_offset(client, topic)
        session_id, epoch, changed = 0, 0, True
        task_status.started()
        while True:
            partitions = [
                {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
            ]
            topics = [{"topic": topic, "partitions": partitions}] if changed else []
            values = {"max_wait": 500, "min_bytes": 1, "max_bytes": 1 << 24, "topics": topics}
            response = await client.call("fetch", 11, {**values, "session_id": session_id, "session_epoch": epoch})
            _expect(response.error_code, "fetch v11")
            session_id, epoch, changed = response.session_id, epoch + 1 if response.session_id else 0, False
            for each in response.responses:
                _expect(each.partitions[0].error_code, "fetch v11 of a partition")
                for sent_s, next_offset in _records(bytes(each.partitions[0].records or b"")):
                    felt.waits_s.append(time.monotonic() - sent_s)
                    offset, changed = next_offset, True


def _records(data: bytes) -> list[tuple[float, int]]:
    """The value and the next offset of each batch; the producer's have one record."""
    found, at = [], 0
    while at + 12 <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        end = at + 12 + length
        if end > len(data):
            break
        # A record ends with its value and the number of its headers.
        found.append((struct.unpack_from(">d", data, end - 9)[0], base + 1))
        at = end
    return found


def _expect(error: int, what: str) -> None:
    assert error == 0, f"{what}: error {error}"
