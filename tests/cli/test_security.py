"""The report of ``check`` on TLS and logins."""

import pytest

from proxy.cli.check import greeting_report
from proxy.cli.cluster_info import BrokerInfo
from proxy.cli.security import diagnose_security
from proxy.config import Address, Config, DownstreamSecurity, UpstreamConfig, UpstreamSecurity

KAFKA = UpstreamConfig((Address("kafka", 9092),))


def findings(
    up: UpstreamSecurity = UpstreamSecurity(),  # noqa: B008  # frozen
    down: DownstreamSecurity = DownstreamSecurity(),  # noqa: B008
) -> dict[str, str]:
    """Level by the text's beginning."""
    found = diagnose_security(Config(KAFKA, upstream_security=up, downstream_security=down))
    return {finding.text: finding.level for finding in found}


def level_of(found: dict[str, str], part: str) -> str:
    (level,) = (level for text, level in found.items() if part in text)
    return level


def test_default_plaintext_settings_have_no_diagnostics() -> None:
    assert findings() == {}


def test_unauthenticated_clients_with_upstream_login_are_noted() -> None:
    found = findings(UpstreamSecurity(tls=True, sasl="SCRAM-SHA-256", username_file="u", password_file="p"))

    assert level_of(found, "use TLS, with a login by SCRAM-SHA-256") == "ok"
    assert level_of(found, "every client has the rights of Sidefetch's own login") == "note"


def test_client_logins_are_reported_with_mechanisms_that_can_be_repeated() -> None:
    found = findings(UpstreamSecurity(tls=True, sasl="client"))

    assert level_of(found, "repeats logins by PLAIN and OAUTHBEARER") == "note"
    assert level_of(found, "SCRAM and GSSAPI cannot be repeated") == "warning"


@pytest.mark.parametrize(
    ("up", "down", "part"),
    [
        (
            UpstreamSecurity(sasl="PLAIN", username_file="u", password_file="p"),
            DownstreamSecurity(),
            "PLAIN without upstream-tls",
        ),
        (UpstreamSecurity(sasl="client"), DownstreamSecurity(), "no upstream-tls"),
        (
            UpstreamSecurity(tls=True, tls_verify_host=False),
            DownstreamSecurity(),
            "upstream-tls-verify-host is off",
        ),
        (UpstreamSecurity(), DownstreamSecurity(insecure=True), "insecure-listen"),
        (UpstreamSecurity(), DownstreamSecurity(insecure=True, sasl_file="u"), "passwords of PLAIN can be read"),
    ],
)
def test_insecure_settings_are_warnings(up: UpstreamSecurity, down: DownstreamSecurity, part: str) -> None:
    assert level_of(findings(up, down), part) == "warning"


def test_greeting_report_shows_whether_any_server_is_reachable() -> None:
    reached = BrokerInfo(-1, Address("a", 1), None, versions={1: (4, 17), 18: (0, 4)})
    away = BrokerInfo(-1, Address("b", 1), None, problem="refused")

    assert "a:1  reached, looks like Kafka 4.0" in greeting_report([reached, away], [])
    assert greeting_report([reached, away], []).endswith(
        "can reach this cluster, for clients whose logins the brokers accept."
    )
    assert greeting_report([away], []).endswith("cannot reach this cluster.")
