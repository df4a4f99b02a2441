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
def test_it_is_good_until_the_time_that_it_tells_before_2050_and_after(until: datetime) -> None:
    assert expiry_time_s(pem(until)) == until.timestamp()


def test_of_a_chain_the_first_counts() -> None:
    assert expiry_time_s(f"words\n{pem(UNTIL)}{pem(UNTIL + timedelta(days=1))}") == UNTIL.timestamp()


@pytest.mark.parametrize("text", ["", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "x" * 100])
def test_what_is_no_certificate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="certificate"):
        expiry_time_s(text)


async def test_a_certificate_that_is_renewed_is_noticed_and_one_that_is_gone_is_not_told(
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
