"""librdkafka as the consumer, alone or as a group that rebalances all the time; notes when records arrive.

``python -m tests.bench.librdkafka``: see ``load``. Alone it begins at the end of every partition.
"""

import json
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message, TopicPartition

_POLL_S = 0.1
_SETTLE_S = 2.0
"""For the group, once it has its partitions: the first fetches are made."""

Arrivals = dict[tuple[str, int, int], tuple[int, int]]
"""By topic, partition and offset, the creation of a record and its first arrival, in microseconds since 1970."""


class Members:
    """All consumers of this process and the records that they have read."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._spec = spec
        self._lock = threading.Lock()
        self.arrivals: Arrivals = {}
        self.stop = threading.Event()
        self.failures: list[str] = []

    def consumer(self, number: int) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._spec["bootstrap"],
                "client.id": f"bench-{number}",
                "group.id": self._spec.get("group") or "unused",
                "client.rack": self._spec.get("rack", ""),
                "auto.offset.reset": "earliest",
                "enable.auto.commit": bool(self._spec.get("group")),
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 500,
                "enable.partition.eof": not self._spec.get("group"),
                "log_level": 3,
            }
        )

    def take(self, message: Message | None) -> bool:
        """Note a record; say whether this was the end of a partition instead."""
        now_us = time.time_ns() // 1000
        if message is None:
            return False
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return True
            if error.fatal():
                raise KafkaException(error)
            return False
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        with self._lock:
            self.arrivals.setdefault((topic, partition, offset), (message.timestamp()[1], now_us))
        return False

    def run(self, number: int, seconds: float | None) -> None:
        """Be a member of the group until stopped; if *seconds* are given, for so long, again and again."""
        try:
            while not self.stop.is_set():
                consumer = self.consumer(number)
                consumer.subscribe(list(self._spec["topics"]))
                leaving = time.monotonic() + (seconds or 1e9)
                while not self.stop.is_set() and time.monotonic() < leaving:
                    self.take(consumer.poll(_POLL_S))
                consumer.close()
                self.stop.wait(seconds or 0)
        except Exception as wrong:
            self.failures.append(repr(wrong))


def alone(members: Members, topics: Mapping[str, int]) -> None:
    """Read every partition from its end."""
    consumer = members.consumer(0)
    places = [TopicPartition(topic, each, OFFSET_END) for topic, count in topics.items() for each in range(count)]
    consumer.assign(places)
    ends = 0
    while ends < len(places):
        ends += members.take(consumer.poll(_POLL_S))
    print("ready", flush=True)
    while not members.stop.is_set():
        members.take(consumer.poll(_POLL_S))
    consumer.close()


def rebalancing(members: Members, stable: int, leaves_every_s: float) -> None:
    """*stable* members, and one more that comes and goes."""
    threads = [
        threading.Thread(target=members.run, args=(number, None if number < stable else leaves_every_s))
        for number in range(stable + 1)
    ]
    for thread in threads:
        thread.start()
    time.sleep(_SETTLE_S)
    print("ready", flush=True)
    for thread in threads:
        thread.join()


def _listen(stop: threading.Event) -> None:
    sys.stdin.readline()
    stop.set()


if __name__ == "__main__":
    spec = json.loads(sys.stdin.readline())
    all_members = Members(spec)
    threading.Thread(target=_listen, args=(all_members.stop,), daemon=True).start()
    if spec.get("group"):
        rebalancing(all_members, spec["stable"], spec["leaves_every_s"])
    else:
        alone(all_members, spec["topics"])
    if all_members.failures:
        sys.exit("\n".join(all_members.failures))
    # Records of before, which nobody had committed, come again and are for the other side to leave out.
    times = list(all_members.arrivals.values())
    print(json.dumps({"records": len(times), "arrivals": times}))
