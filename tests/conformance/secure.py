"""Sidefetch in front of brokers with TLS and logins, and its clients."""

import subprocess
import sys
import time
from collections.abc import Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.kafka.records import Record
from tests.kafka.secured import (
    Secured,
)

__all__ = ["RECORDS", "check", "done_with", "known", "read", "reading", "taken", "tls", "until"]

RECORDS = 300


def read(bootstrap: str, topic: str, count: int, **settings: object) -> list[tuple[int, int]]:
    """Return (partition, offset) of *count* records, read by a client that knows only the bootstrap address."""
    with reading(bootstrap, topic, **settings) as consumer:
        return taken(consumer, count)


def reading(bootstrap: str, topic: str, **settings: object) -> Consumer:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "log_level": 0, **settings})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(3)])
    return consumer


def taken(consumer: Consumer, count: int, timeout_s: float = 30.0) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records in {timeout_s:g} s"
        for message in consumer.consume(count - len(found), 0.2):
            if message.error() is None:
                found.append((message.partition() or 0, message.offset() or 0))
    return found


def known(records: Sequence[Record]) -> list[tuple[int, int]]:
    return sorted((record.partition, record.offset) for record in records)


def tls(secured: Secured) -> list[str]:
    return ["--upstream-tls", "on", "--upstream-tls-ca", str(secured.authority.path)]


def check(bootstrap: str, *options: str) -> "subprocess.CompletedProcess[str]":
    return done_with("check", bootstrap, *options)


def done_with(command: str, bootstrap: str, *options: str) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, "-m", "proxy", command, "--bootstrap-servers", bootstrap, *options]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)


def until(condition: "object", timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    assert callable(condition)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
