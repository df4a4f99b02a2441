"""Real clients that come by TLS and log in to Sidefetch, before brokers that know nothing of it."""

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.certificates import Authority
from tests.conformance.secure import known, read, until
from tests.kafka.admin import Admin
from tests.kafka.cluster import KafkaCluster
from tests.sidefetch import Sidefetch

pytestmark = pytest.mark.kafka

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """A listener that speaks TLS and knows alice by either mechanism."""
    ours = Authority(tmp_path).issue("127.0.0.1")
    users = tmp_path / "users"
    users.write_text("".join(line("alice", "correct horse", each) for each in MECHANISMS[1:]))
    return [
        *("--listen-tls-cert", str(ours.cert), "--listen-tls-key", str(ours.key)),
        *("--listen-sasl-file", str(users)),
    ]


def line(user: str, password: str, mechanism: str) -> str:
    command = [sys.executable, "-m", "proxy", "user", user, "--mechanism", mechanism]
    done = subprocess.run(command, input=f"{password}\n", capture_output=True, text=True, check=True, timeout=30)
    assert password not in done.stdout
    return done.stdout


def login(folder: Path, mechanism: str, password: str = "correct horse") -> dict[str, object]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(folder / "ca.pem"),
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_authenticated_clients_are_served(
    kafka4: KafkaCluster, options: list[str], tmp_path: Path, mechanism: str
) -> None:
    topic, records = Admin(kafka4).filled_topic("known", 3, 100)
    with Sidefetch(kafka4.bootstrap, options=options) as sidefetch:
        assert sorted(read(sidefetch.bootstrap, topic, 100, **login(tmp_path, mechanism))) == known(records)
    log = sidefetch.log_text()
    assert "correct horse" not in log
    assert "unhandled-exception" not in log


def test_wrong_password_is_reported_and_client_is_not_served(
    kafka4: KafkaCluster, options: list[str], tmp_path: Path
) -> None:
    errors: list[str] = []
    with Sidefetch(kafka4.bootstrap, options=options) as sidefetch:
        for mechanism in MECHANISMS:
            settings = {
                **login(tmp_path, mechanism, "wrong"),
                "bootstrap.servers": sidefetch.bootstrap,
                "group.id": "unused",
                "error_cb": lambda error, mechanism=mechanism: errors.append(f"{mechanism}: {error}"),
                "log_level": 0,
            }
            with Consumer(settings) as consumer:
                consumer.assign([TopicPartition("any", 0, OFFSET_BEGINNING)])
                until(
                    lambda c=consumer, m=mechanism: (
                        c.poll(0.1) is not None or any(is_login_error(each, m) for each in errors)
                    )
                )
            assert any(is_login_error(each, mechanism) for each in errors), errors
        assert sidefetch.log_text().count(" authentication-failed ") >= len(MECHANISMS) - 1


def is_login_error(error: str, mechanism: str) -> bool:
    return error.startswith(mechanism) and "invalid credentials" in error
