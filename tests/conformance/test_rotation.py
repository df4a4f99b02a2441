"""Certificates and tokens that are replaced while real clients read by them."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Message, Producer

from tests.certificates import Authority, Files
from tests.conformance.test_upstream_security import check, reading, taken, tls, until
from tests.kafka.admin import Admin, unique
from tests.kafka.secured import Secured, secured_cluster, unsecured_token
from tests.prerequisites import require
from tests.sidefetch import Sidefetch

pytestmark = pytest.mark.kafka

LIFE_S: Final = 12.0
"""Of what is to be replaced: nobody is let in by it any longer than that."""
EVERY_S: Final = 0.002
"""Between two records."""

KEYS: Final = ("ours.key", "shown.key")

Where = tuple[int, int]
"""Partition and offset."""
Contents = dict[str, bytes]
"""Of files, by name."""


class Mounted:
    """A folder as Kubernetes mounts secrets: its files are links through a link, and that one is swapped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._versions = 0

    def hold(self, contents: Contents) -> None:
        """From now on, all at once."""
        self._versions += 1
        version = self._folder / f"..version-{self._versions}"
        version.mkdir(parents=True)
        for name, content in contents.items():
            (version / name).write_bytes(content)
            link = self._folder / name
            if not link.is_symlink():
                link.symlink_to(Path("..data") / name)
        swapped = self._folder / "..data-next"
        swapped.symlink_to(version.name)
        os.replace(swapped, self._folder / "..data")

    def option(self, name: str, file: str) -> list[str]:
        return [f"--{name}", str(self._folder / file)]


def contents(ours: Files, shown: Files, token: str) -> Contents:
    """What Sidefetch shows to brokers and to clients, and what it tells brokers."""
    return {
        "ours.crt": ours.cert.read_bytes(),
        "ours.key": ours.key.read_bytes(),
        "shown.crt": shown.cert.read_bytes(),
        "shown.key": shown.key.read_bytes(),
        "token": token.encode(),
    }


def options_of(mounted: Mounted, secured: Secured) -> list[str]:
    return [
        *tls(secured),
        *mounted.option("upstream-tls-cert", "ours.crt"),
        *mounted.option("upstream-tls-key", "ours.key"),
        *("--upstream-sasl", "OAUTHBEARER"),
        *mounted.option("upstream-sasl-token-file", "token"),
        *mounted.option("listen-tls-cert", "shown.crt"),
        *mounted.option("listen-tls-key", "shown.key"),
    ]


@contextmanager
def written(secured: Secured, topic: str) -> Iterator[list[Where]]:
    """What has been acknowledged, while a producer writes to all partitions in turn."""
    acknowledged: list[Where] = []
    is_over = threading.Event()

    def note(error: object, message: Message) -> None:
        assert error is None
        acknowledged.append((message.partition() or 0, message.offset() or 0))

    def write() -> None:
        producer = Producer({"bootstrap.servers": secured.kafka.bootstrap, "linger.ms": 5})
        number = 0
        while not is_over.wait(EVERY_S):
            producer.produce(topic, b"%0200d" % number, partition=number % 3, on_delivery=note)
            producer.poll(0)
            number += 1
        producer.flush(20)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield acknowledged
    finally:
        is_over.set()
        thread.join()


@contextmanager
def read_by(consumer: Consumer) -> Iterator[list[Where]]:
    """What one client has read so far that reads all the while."""
    found: list[Where] = []
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            for message in consumer.consume(1000, 0.1):
                if message.error() is None:
                    found.append((message.partition() or 0, message.offset() or 0))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield found
    finally:
        is_over.set()
        thread.join()


def as_client(folder: Path, *authorities: Authority) -> dict[str, object]:
    """Settings of a client that trusts these."""
    trusted = folder / f"{'-'.join(each.path.stem for each in authorities)}-trusted.pem"
    trusted.write_bytes(b"".join(each.path.read_bytes() for each in authorities))
    return {"security.protocol": "SSL", "ssl.ca.location": str(trusted)}


def assert_whole(found: list[Where]) -> None:
    """Every record once, in order."""
    for partition in range(3):
        offsets = [offset for where, offset in found if where == partition]
        assert offsets == list(range(len(offsets)))


def anew(sidefetch: Sidefetch, topic: str, count: int, trusting: dict[str, object]) -> None:
    """A client that comes now reads as much as there is."""
    with reading(sidefetch.bootstrap, topic, **trusting) as consumer:
        assert_whole(taken(consumer, count))


def test_clients_read_on_while_all_that_proves_who_is_who_is_replaced(secured: Secured, tmp_path: Path) -> None:
    topic = Admin(secured.kafka).create_topic(unique("rotated"), 3, replication=3)
    brokers, first, second = secured.authority, Authority(tmp_path, "first"), Authority(tmp_path, "second")
    bootstrap = secured.kafka.bootstrap_of("STRICT")
    over_at_s = time.monotonic() + LIFE_S
    old = contents(
        brokers.issue("sidefetch", file="old", lifetime_s=LIFE_S),
        first.issue("127.0.0.1", file="old"),
        unsecured_token(lifetime_s=LIFE_S),
    )
    new = contents(brokers.issue("sidefetch", file="new"), second.issue("127.0.0.1", file="new"), unsecured_token())
    trusts_first, trusts_second = (as_client(tmp_path, each) for each in (first, second))
    mounted = Mounted(tmp_path / "mounted")
    mounted.hold(old)
    with (
        Sidefetch(bootstrap, options=options_of(mounted, secured)) as sidefetch,
        reading(sidefetch.bootstrap, topic, **as_client(tmp_path, first, second)) as consumer,
        read_by(consumer) as read,
    ):
        with written(secured, topic) as acknowledged:
            until(lambda: len(read) > 100)
            anew(sidefetch, topic, len(acknowledged), trusts_first)

            mounted.hold({**new, **{name: old[name] for name in KEYS}})
            until(lambda: sidefetch.log_text().count(" credentials-kept ") == 2)
            anew(sidefetch, topic, len(acknowledged), trusts_first)

            mounted.hold(new)
            until(lambda: sidefetch.log_text().count(" credentials-read ") == 2)
            anew(sidefetch, topic, len(acknowledged), trusts_second)

            time.sleep(max(over_at_s + 1 - time.monotonic(), 0))
            assert is_let_in(Mounted(tmp_path / "all new"), secured, new)
            for name in ("ours", "token"):
                partly_old = new | {each: old[each] for each in old if each.startswith(name)}
                assert not is_let_in(Mounted(tmp_path / name), secured, partly_old), "nothing was shown"
            anew(sidefetch, topic, len(acknowledged), trusts_second)
        until(lambda: len(read) >= len(acknowledged))
        log = sidefetch.log_text()
    assert len(acknowledged) > 1000
    assert sorted(read) == sorted(acknowledged)
    assert_whole(read)
    assert "login-not-renewed" not in log
    assert "broker-unavailable" not in log


def is_let_in(mounted: Mounted, secured: Secured, contents: Contents) -> bool:
    """Whether brokers take these from who connects now."""
    mounted.hold(contents)
    return check(secured.kafka.bootstrap_of("STRICT"), *options_of(mounted, secured)).returncode == 0


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    require("java", "maven")
    with secured_cluster() as cluster:
        yield cluster
