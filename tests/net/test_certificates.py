"""The expiry of a certificate."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trio
import trustme

from proxy.config import Address, Config, DownstreamSecurity, UpstreamConfig
from proxy.net.observability.certificates import Certificates, expiry_time_s
from tests.certificates import Authority

UNTIL = datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC)


def pem(until: datetime) -> str:
    return trustme.CA().issue_cert("a.example", not_after=until).cert_chain_pems[0].bytes().decode()


@pytest.mark.parametrize("until", [UNTIL, UNTIL + timedelta(seconds=1), UNTIL + timedelta(days=90_000)])
def test_expiry_time_is_read_for_dates_before_and_after_2050(until: datetime) -> None:
    assert expiry_time_s(pem(until)) == until.timestamp()


def test_of_a_chain_the_first_counts() -> None:
    assert expiry_time_s(f"words\n{pem(UNTIL)}{pem(UNTIL + timedelta(days=1))}") == UNTIL.timestamp()


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "x" * 100])
def test_invalid_certificate_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="certificate"):
        expiry_time_s(text)


async def test_renewed_certificate_updates_expiry_time_and_deleted_one_is_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.net.observability.certificates._EVERY_S", 0.01)
    files = Authority(tmp_path).issue("localhost")
    files.cert.write_text(pem(UNTIL))
    shown = DownstreamSecurity(tls_cert=str(files.cert), tls_key=str(files.key))
    upstream = UpstreamConfig((Address("127.0.0.1", 1),))
    certificates = Certificates(Config(upstream, downstream_security=shown))

    async def until(expected: dict[str, float]) -> None:
        with trio.fail_after(5):
            while certificates.until_s() != expected:
                await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(certificates.run)
        await until({"listen": UNTIL.timestamp()})
        files.cert.write_text(pem(UNTIL + timedelta(days=1)))
        await until({"listen": UNTIL.timestamp() + 86_400})
        files.cert.unlink()
        await until({})
        nursery.cancel_scope.cancel()
