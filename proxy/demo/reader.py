"""A program that reads a topic from its end with aiokafka, a client without fetch sessions, in no consumer group.

It writes a line of JSON to stdout four times a second, with the number of records and the cost of its fetches,
until it is ended or its stdout is closed. aiokafka needs asyncio, which is why it runs in a process of its own.
"""

import argparse
import asyncio
import json
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.conn import AIOKafkaConnection
from aiokafka.errors import KafkaError

from proxy.config import UpstreamSecurity
from proxy.demo.secured import aiokafka_settings
from proxy.errors import ProxyError

_FETCH: Final = 1
_REPORT_S: Final = 0.25


class Wire:
    """Counts of the answered fetches of this process: requests, partitions named in them, and bytes both ways.

    Bytes include the 4-byte size prefix of each frame.
    """

    def __init__(self) -> None:
        self.fetches = 0
        self.named = 0
        self.request_bytes = 0
        self.response_bytes = 0

    def watch(self) -> None:
        """Replace a method of aiokafka's connections, so that each fetch answered from now on is counted."""
        handle: Any = AIOKafkaConnection._handle_frame

        def handle_frame(connection: Any, frame: bytes) -> None:
            correlation_id, request, _ = connection._requests[0]
            if getattr(request, "API_KEY", None) == _FETCH:
                self._count(connection, request, correlation_id, frame)
            handle(connection, frame)

        AIOKafkaConnection._handle_frame = handle_frame

    def _count(self, connection: Any, request: Any, correlation_id: int, frame: bytes) -> None:
        header = request.build_request_header(correlation_id=correlation_id, client_id=connection._client_id)
        prefix = struct.calcsize(">i")
        self.fetches += 1
        self.named += sum(len(partitions) for _, partitions in request.topics)
        self.request_bytes += prefix + len(header.encode()) + len(request.encode())
        self.response_bytes += prefix + len(frame)


async def read(bootstrap: str, topic: str, partitions: int, secured: Mapping[str, Any]) -> None:
    """Read a topic from its end for ever, and write a line of JSON with the counts to stdout every 0.25 s.

    Args:  bootstrap: the bootstrap servers, ``host:port,host:port…``.
           partitions: the number of partitions to read, from 0 on.
           secured: aiokafka's arguments for TLS and login.
    """
    wire = Wire()
    wire.watch()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap.split(","), client_id="reader", auto_offset_reset="latest", **secured
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
        records = 0
        loop = asyncio.get_running_loop()
        report_at = loop.time()
        while True:
            batches = await consumer.getmany(timeout_ms=100)
            records += sum(len(each) for each in batches.values())
            if loop.time() >= report_at:
                report_at = loop.time() + _REPORT_S
                sys.stdout.write(json.dumps({"records": records, **vars(wire)}) + "\n")
                sys.stdout.flush()
    finally:
        await consumer.stop()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proxy.demo.reader")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", required=True, type=int)
    parser.add_argument("--security", default="{}", help="an UpstreamSecurity as JSON, which names files only")
    arguments = parser.parse_args()
    try:
        secured = aiokafka_settings(UpstreamSecurity(**json.loads(arguments.security)))
        asyncio.run(read(arguments.bootstrap_servers, arguments.topic, arguments.partitions, secured))
    except (KeyboardInterrupt, BrokenPipeError):
        # The starter has closed stdout; Python would report the broken pipe once more at exit.
        with suppress(OSError):
            sys.stdout.close()
        return 0
    except (KafkaError, ProxyError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
