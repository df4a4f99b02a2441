"""Certificates and tokens that are replaced while real clients read by them."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Message, Producer

from tests.certificates import Authority
from tests.conformance.secure import check, reading, taken, tls, until
from tests.kafka.admin import Admin, unique
from tests.kafka.secured import Secured, secured_cluster, unsecured_token
from tests.prerequisites import require
from tests.sidefetch import Sidefetch

pytestmark = pytest.mark.kafka

LIFE_S: Final = 15.0
"""The lifetime of replaced credentials: they are accepted no longer than that."""
TURN_S: Final = 2.5
"""Long enough for Sidefetch to look at its files."""
EVERY_S: Final = 0.002
"""Between two records."""

Where = tuple[int, int]
"""Partition and offset."""
Contents = dict[str, bytes]
"""Contents of files, by name."""


class Mounted:
    """A folder as Kubernetes mounts secrets: its files are links through a link, and that one is swapped."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._versions = 0

    def hold(self, contents: Contents) -> None:
        """Replace all files at once."""
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


class Issuer:
    """The issuer of Sidefetch's certificates for brokers and clients, and of its tokens."""

    def __init__(self, brokers: Authority, clients: Authority) -> None:
        self._brokers = brokers
        self._clients = clients

    def issue(self) -> Contents:
        """For ``LIFE_S`` from now on."""
        ours = self._brokers.issue("sidefetch", file="ours", lifetime_s=LIFE_S)
        shown = self._clients.issue("127.0.0.1", file="shown", lifetime_s=LIFE_S)
        return {
            "ours.crt": ours.cert.read_bytes(),
            "ours.key": ours.key.read_bytes(),
            "shown.crt": shown.cert.read_bytes(),
            "shown.key": shown.key.read_bytes(),
            "token": unsecured_token(lifetime_s=LIFE_S).encode(),
        }


@contextmanager
def replaced(mounted: Mounted, issuer: Issuer) -> Iterator[None]:
    """All of it, again and again, and half written in between: another certificate with the same key."""
    is_over = threading.Event()

    def replace() -> None:
        while True:
            current = issuer.issue()
            mounted.hold(current)
            if is_over.wait(TURN_S):
                return
            strange = issuer.issue()
            mounted.hold(current | {name: strange[name] for name in ("ours.crt", "shown.crt", "token")})
            if is_over.wait(TURN_S):
                return

    with running(replace, is_over):
        yield


@contextmanager
def running(work: Callable[[], None], is_over: threading.Event) -> Iterator[None]:
    """Run *work* in a thread until *is_over* is set."""
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


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
    """Produce to all partitions in turn; yield the acknowledged records."""
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

    with running(write, is_over):
        yield acknowledged


@contextmanager
def read_by(consumer: Consumer) -> Iterator[list[Where]]:
    """Read with one client all the time; yield its records so far."""
    found: list[Where] = []
    is_over = threading.Event()

    def read() -> None:
        while not is_over.is_set():
            for message in consumer.consume(1000, 0.1):
                if message.error() is None:
                    found.append((message.partition() or 0, message.offset() or 0))

    with running(read, is_over):
        yield found


def assert_whole(found: list[Where]) -> None:
    """Every record once, in order."""
    for partition in range(3):
        offsets = [offset for where, offset in found if where == partition]
        assert offsets == list(range(len(offsets)))


@pytest.mark.long
def test_clients_keep_reading_while_certificates_and_tokens_are_replaced(secured: Secured, tmp_path: Path) -> None:
    topic = Admin(secured.kafka).create_topic(unique("replaced"), 3, replication=3)
    authority = Authority(tmp_path)
    issuer, mounted = Issuer(secured.authority, authority), Mounted(tmp_path / "mounted")
    first, over_at_s = issuer.issue(), time.monotonic() + LIFE_S
    mounted.hold(first)
    trusting = {"security.protocol": "SSL", "ssl.ca.location": str(authority.path), "enable.auto.commit": False}
    with (
        Sidefetch(secured.kafka.bootstrap_of("STRICT"), options=options_of(mounted, secured)) as sidefetch,
        replaced(mounted, issuer),
        reading(sidefetch.bootstrap, topic, **trusting) as consumer,
        read_by(consumer) as read,
    ):
        with written(secured, topic) as acknowledged:
            until(lambda: len(read) > 100)
            is_over = False
            while not is_over:
                is_over = time.monotonic() > over_at_s
                with reading(sidefetch.bootstrap, topic, **trusting) as newcomer:
                    assert_whole(taken(newcomer, len(acknowledged)))
        until(lambda: len(read) >= len(acknowledged))
        log = sidefetch.log_text()
    assert sorted(read) == sorted(acknowledged)
    assert_whole(read)
    assert log.count(" credentials-reload-failed ") >= 2
    assert log.count(" credentials-reloaded ") >= 2
    assert "reauthentication-failed" not in log
    assert "broker-unavailable" not in log
    fresh = issuer.issue()
    assert is_let_in(Mounted(tmp_path / "fresh"), secured, fresh)
    for name in ("ours", "token"):
        partly_old = fresh | {each: first[each] for each in first if each.startswith(name)}
        assert not is_let_in(Mounted(tmp_path / name), secured, partly_old), "nothing was shown"


def is_let_in(mounted: Mounted, secured: Secured, contents: Contents) -> bool:
    """Whether brokers take these from who connects now."""
    mounted.hold(contents)
    return check(secured.kafka.bootstrap_of("STRICT"), *options_of(mounted, secured)).returncode == 0


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    require("java", "maven")
    with secured_cluster() as cluster:
        yield cluster
