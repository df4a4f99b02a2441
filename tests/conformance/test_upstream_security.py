"""Brokers that speak TLS and ask who is there, read by clients that know nothing of that."""

import json
import re
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.certificates import Authority
from tests.conformance.secure import (
    RECORDS,
    check,
    done_with,
    known,
    read,
    reading,
    taken,
    tls,
    until,
)
from tests.kafka.admin import Admin, unique
from tests.kafka.records import Record
from tests.kafka.secured import (
    PASSWORD,
    REAUTH_MS,
    REAUTHENTICATES,
    USER,
    Secured,
    secured_cluster,
    unsecured_token,
)
from tests.net.token_server import Server as TokenServer
from tests.ports import free_ports
from tests.prerequisites import require
from tests.sidefetch import Sidefetch

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    require("java", "maven")
    with secured_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def topic(secured: Secured) -> tuple[str, list[Record]]:
    admin = Admin(secured.kafka)
    name = admin.create_topic(unique("known"), 3, replication=3)
    return name, admin.produce_known(name, RECORDS, 3)


def held(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(f"{text}\n")
    return str(path)


def named(folder: Path, mechanism: str, password: str = PASSWORD) -> list[str]:
    return [
        *("--upstream-sasl", mechanism),
        *("--upstream-sasl-username-file", held(folder, "username", USER)),
        *("--upstream-sasl-password-file", held(folder, "password", password)),
    ]


def test_brokers_are_read_by_tls(secured: Secured, topic: tuple[str, list[Record]]) -> None:
    name, records = topic
    with Sidefetch(secured.kafka.bootstrap_of("TLS"), options=tls(secured)) as sidefetch:
        assert sorted(read(sidefetch.bootstrap, name, len(records))) == known(records)
        assert "Traceback" not in sidefetch.log_text()


def test_broker_gets_the_required_certificate_and_a_new_one_at_the_next_connection(
    secured: Secured, topic: tuple[str, list[Record]], tmp_path: Path
) -> None:
    name, records = topic
    authority = secured.authority
    ours = authority.issue("sidefetch", file="ours", password=b"key's own")
    password = held(tmp_path, "key-password", "key's own")
    options = [
        *tls(secured),
        *("--upstream-tls-cert", str(ours.cert), "--upstream-tls-key", str(ours.key)),
        *("--upstream-tls-key-password-file", password),
    ]
    with Sidefetch(secured.kafka.bootstrap_of("MUTUAL"), options=options) as sidefetch:
        assert sorted(read(sidefetch.bootstrap, name, len(records))) == known(records)

        old_key = ours.key.read_bytes()
        authority.issue("sidefetch", file="ours", password=b"key's own")
        new_key = ours.key.read_bytes()
        ours.key.write_bytes(old_key)  # the pair is half written
        until(lambda: "credentials-reload-failed" in sidefetch.log_text())
        assert sorted(read(sidefetch.bootstrap, name, len(records))) == known(records)

        ours.key.write_bytes(new_key)
        until(lambda: "credentials-reloaded" in sidefetch.log_text())
        assert sorted(read(sidefetch.bootstrap, name, len(records))) == known(records)
        assert "key's own" not in sidefetch.log_text()


def verified_answers(admin_port: int) -> float:
    """Return how many answers Sidefetch has compared with the broker's own."""
    with urlopen(f"http://127.0.0.1:{admin_port}/metrics", timeout=5) as answer:
        metrics = answer.read().decode()
    found = re.search(r'^sidefetch_verify_answers_total\{result="compared"\} (\S+)$', metrics, re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_check_reports_cause_of_unreachable_brokers_with_remedy(secured: Secured, tmp_path: Path) -> None:
    kafka = secured.kafka
    port = kafka.brokers[1].more_ports["TLS"]
    stranger = Authority(tmp_path, "stranger").issue("sidefetch")
    system = [option for option in tls(secured) if option not in ("--upstream-tls-ca", str(secured.authority.path))]
    ours = ["--upstream-tls-cert", str(stranger.cert), "--upstream-tls-key", str(stranger.key)]
    mutual = kafka.bootstrap_of("MUTUAL").split(",")[0]
    reported = {
        "authority is not known": check(f"127.0.0.1:{port}", *system),
        "for another host": check(f"localhost:{port}", *tls(secured)),
        "if it speaks plaintext on this port, set upstream-tls off": check(kafka.brokers[1].address, *tls(secured)),
        "Then upstream-tls on": check(f"127.0.0.1:{port}"),
        "see upstream-tls-cert": check(mutual, *tls(secured)),
        "our certificate": check(mutual, *tls(secured), *ours),
        "Then upstream-sasl": check(kafka.bootstrap_of("SASL").split(",")[0], *tls(secured)),
    }

    for remedy, done in reported.items():
        assert done.returncode == 1, done
        assert remedy in done.stdout, (remedy, done.stdout.partition("No bootstrap")[2])


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sidefetch_logs_in_to_brokers_with_each_mechanism(
    secured: Secured, topic: tuple[str, list[Record]], mechanism: str, tmp_path: Path
) -> None:
    name, records = topic
    options = [*tls(secured), *named(tmp_path, mechanism), "--verify", "1"]
    with Sidefetch(secured.kafka.bootstrap_of("SASL"), options=options) as sidefetch:
        assert sorted(read(sidefetch.bootstrap, name, len(records))) == known(records)
        assert PASSWORD not in sidefetch.log_text()
    done = check(secured.kafka.bootstrap_of("SASL"), *options)
    assert done.returncode == 0, done.stdout
    assert PASSWORD not in done.stdout


def test_a_token_in_a_file_is_read_again_for_each_login(
    secured: Secured, topic: tuple[str, list[Record]], tmp_path: Path
) -> None:
    name, records = topic
    token = held(tmp_path, "token", unsecured_token(lifetime_s=-60))
    options = [*tls(secured), "--upstream-sasl", "OAUTHBEARER", "--upstream-sasl-token-file", token]
    with Sidefetch(secured.kafka.bootstrap_of("SASL"), options=options) as sidefetch:
        until(lambda: "OAUTHBEARER is refused" in sidefetch.log_text())
        held(tmp_path, "token", unsecured_token())
        assert sorted(read(sidefetch.bootstrap, name, len(records))) == known(records)


def test_oauth_token_is_requested_with_client_credentials(
    secured: Secured, topic: tuple[str, list[Record]], tmp_path: Path
) -> None:
    name, records = topic
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours = secured.authority.issue("127.0.0.1", file="tokens")
    context.load_cert_chain(ours.cert, ours.key)
    with TokenServer(context) as server:
        token = unsecured_token()
        server.refused = (200, json.dumps({"access_token": token, "expires_in": 3600}).encode(), {})
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        options = [
            *tls(secured),
            *("--upstream-sasl", "OAUTHBEARER", "--upstream-sasl-token-url", server.url),
            *("--upstream-sasl-token-ca", str(secured.authority.path)),
            *("--upstream-sasl-client-id-file", held(tmp_path, "client-id", "sidefetch")),
            *("--upstream-sasl-client-secret-file", held(tmp_path, "client-secret", "client's own")),
        ]
        try:
            with Sidefetch(secured.kafka.bootstrap_of("SASL"), options=options) as sidefetch:
                assert sorted(read(sidefetch.bootstrap, name, len(records))) == known(records)
        finally:
            server.shutdown()
            thread.join()
    assert len(server.asked) == 1
    assert token not in sidefetch.log_text()
    assert "client's own" not in sidefetch.log_text()


def test_check_reports_rejected_login_with_remedy(secured: Secured, tmp_path: Path) -> None:
    bootstrap = secured.kafka.bootstrap_of("SASL")
    reported = {
        "see upstream-sasl-username-file and upstream-sasl-password-file": [
            check(bootstrap, *tls(secured), *named(tmp_path, mechanism, "wrong password"))
            for mechanism in ("PLAIN", "SCRAM-SHA-256")
        ],
        "no login is taken there": [
            check(secured.kafka.bootstrap_of("TLS"), *tls(secured), *named(tmp_path, "PLAIN"))
        ],
    }

    for remedy, each in reported.items():
        for done in each:
            assert done.returncode == 1, done
            assert remedy in done.stdout
            assert "wrong password" not in done.stdout + done.stderr


@pytest.mark.parametrize("listener", ["SASL", "STRICT"])
def test_a_user_of_such_brokers_can_try_it(
    secured: Secured, topic: tuple[str, list[Record]], listener: str, tmp_path: Path
) -> None:
    """Log in with a password, or with a certificate and a token, both directly and through Sidefetch."""
    ours = secured.authority.issue("sidefetch", file="tried")
    options = {
        "SASL": named(tmp_path, "SCRAM-SHA-256"),
        "STRICT": [
            *("--upstream-tls-cert", str(ours.cert), "--upstream-tls-key", str(ours.key)),
            *("--upstream-sasl", "OAUTHBEARER"),
            *("--upstream-sasl-token-file", held(tmp_path, "token", unsecured_token())),
        ],
    }
    arguments = ["--topic", topic[0], "--seconds", "2", *tls(secured), *options[listener]]

    done = done_with("try", secured.kafka.bootstrap_of(listener), *arguments)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Shown: reading through Sidefetch costs" in done.stdout
    assert PASSWORD not in done.stdout + done.stderr


def test_try_reports_rejected_login_with_remedy(
    secured: Secured, topic: tuple[str, list[Record]], tmp_path: Path
) -> None:
    arguments = ["--topic", topic[0], *tls(secured), *named(tmp_path, "PLAIN", "wrong password")]

    done = done_with("try", secured.kafka.bootstrap_of("SASL"), *arguments)

    assert done.returncode == 1
    assert "see upstream-sasl-username-file and upstream-sasl-password-file" in done.stderr
    assert "wrong password" not in done.stdout + done.stderr


def test_a_login_that_ends_is_renewed_while_a_fetch_waits_at_the_broker(
    secured: Secured, topic: tuple[str, list[Record]], tmp_path: Path
) -> None:
    """Without renewal the broker would close each connection at the first request after the time."""
    name, records = topic
    options = [*tls(secured), *named(tmp_path, REAUTHENTICATES), "--log-level", "debug"]
    with Sidefetch(secured.kafka.bootstrap_of("SASL"), options=options) as sidefetch:
        with reading(sidefetch.bootstrap, name) as consumer:
            assert sorted(taken(consumer, len(records))) == known(records)
            idle_until = time.monotonic() + 4 * REAUTH_MS / 1000
            while time.monotonic() < idle_until:
                assert consumer.consume(1, 0.5) == []
            more = Admin(secured.kafka).produce_known(name, 30, 3, first=len(records))
            assert sorted(taken(consumer, 30)) == known(more)
        log = sidefetch.log_text()
    records += more
    assert "reauthentication-failed" not in log
    assert "fetch-connection-closed" not in log
    assert "broker-unavailable" not in log


# -------------------------------------------------------------------------- logins of clients, passed through

LOGINS: dict[str, dict[str, object]] = {
    "PLAIN": {"sasl.username": USER, "sasl.password": PASSWORD},
    "SCRAM-SHA-256": {"sasl.username": USER, "sasl.password": PASSWORD},
    "SCRAM-SHA-512": {"sasl.username": USER, "sasl.password": PASSWORD},
    "OAUTHBEARER": {"enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": f"principal={USER}"},
}


def as_client(mechanism: str) -> dict[str, object]:
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, **LOGINS[mechanism]}


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_a_login_that_can_be_repeated_is_and_the_client_is_read_for(
    secured: Secured, topic: tuple[str, list[Record]], mechanism: str
) -> None:
    name, records = topic
    (admin_port,) = free_ports(1)
    options = [
        *tls(secured),
        *("--upstream-sasl", "client", "--verify", "1", "--rack", "b", "--log-level", "debug"),
        *("--admin-listen", f"127.0.0.1:{admin_port}"),
    ]
    with (
        Sidefetch(secured.kafka.bootstrap_of("SASL"), options=options) as sidefetch,
        reading(sidefetch.bootstrap, name, **as_client(mechanism)) as consumer,
    ):
        assert sorted(taken(consumer, len(records))) == known(records)
        until(lambda: "client-identified" in sidefetch.log_text())
        # A verification ends with the client's connection, so the client stays until one is done.
        until(lambda: verified_answers(admin_port) > 0)
    log = sidefetch.log_text()
    (stopped,) = (line for line in log.splitlines() if " stopped " in line)
    assert "preferred_fetches=" in stopped, "it was not read for, from a follower too"
    assert "verify_differences" not in stopped
    assert " verified=" in stopped
    assert PASSWORD not in log


@pytest.mark.parametrize("mechanism", [pytest.param("SCRAM-SHA-256", marks=pytest.mark.long), REAUTHENTICATES])
def test_a_login_that_cannot_be_repeated_keeps_the_client_to_its_connection(
    secured: Secured, topic: tuple[str, list[Record]], mechanism: str
) -> None:
    """Also when it has to log in again in the midst of reading."""
    name, records = topic
    options = [*tls(secured), "--upstream-sasl", "client"]
    with (
        Sidefetch(secured.kafka.bootstrap_of("SASL"), options=options) as sidefetch,
        reading(sidefetch.bootstrap, name, **as_client(mechanism)) as consumer,
    ):
        assert sorted(taken(consumer, len(records))) == known(records)
        idle_until = time.monotonic() + 2 * REAUTH_MS / 1000
        while time.monotonic() < idle_until:
            assert consumer.consume(1, 0.5) == []
        more = Admin(secured.kafka).produce_known(name, 30, 3, first=len(records))
        assert sorted(taken(consumer, 30)) == known(more)
    records += more
    log = sidefetch.log_text()
    assert "client-limited-to-one-connection client=127.0.0.1" in log
    assert f"mechanism={mechanism}" in log
    (stopped,) = (line for line in log.splitlines() if " stopped " in line)
    assert " clients_on_one_connection=" in stopped
    assert "_fetches=" not in stopped, "something was read for it"


def test_a_client_that_is_refused_by_the_broker_gets_the_brokers_own_word(secured: Secured) -> None:
    options = [*tls(secured), "--upstream-sasl", "client"]
    errors: list[str] = []
    with Sidefetch(secured.kafka.bootstrap_of("SASL"), options=options) as sidefetch:
        settings = {
            **as_client("PLAIN"),
            "sasl.password": "wrong",
            "error_cb": lambda error: errors.append(str(error)),
        }
        with reading(sidefetch.bootstrap, "any", **settings) as consumer:
            until(
                lambda: consumer.poll(0.1) is not None or any("Invalid username or password" in e for e in errors)
            )
    assert any("Invalid username or password" in each for each in errors), errors
