"""A connection for single messages, and record batches."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from proxy.demo.batches import BatchInfo, DemoRecord, encode_batch, split_batches
from proxy.demo.client import KafkaConnection as Raw
from proxy.demo.client import connect as dial
from tests.sidefetch import Sidefetch
from tests.tap import Tap

__all__ = ["QUICK", "Raw", "batches_in", "dial", "tapped", "value_batch"]


def value_batch(*values: bytes, timestamp_ms: int = 1_700_000_000_000) -> bytes:
    """One uncompressed batch."""
    return encode_batch([DemoRecord(value, timestamp_ms=timestamp_ms) for value in values])


def batches_in(records: bytes | None) -> list[BatchInfo]:
    """The batches of a fetch answer."""
    return list(split_batches(records or b""))


QUICK: Final = ("--upstream-max-wait", "0.3s")


@contextmanager
def tapped(bootstrap: str, *options: str) -> Iterator[tuple[Sidefetch, Tap, str]]:
    """Start Sidefetch, and a tap between it and its clients, which begin at the yielded address."""
    given_host = "127.0.0.2"
    with Sidefetch(bootstrap, options=("--advertise", given_host, *QUICK, *options)) as sidefetch:
        host, port = sidefetch.bootstrap.split(":")
        ports = [int(port), *(sidefetch.port_of(node_id) for node_id in (1, 2, 3))]
        with Tap({each: (host, each) for each in ports}, host=given_host) as tap:
            yield sidefetch, tap, f"{given_host}:{port}"
