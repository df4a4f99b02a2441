"""The rotation of a generated certificate: kept in a Secret that all replicas share, trusted by the API server.

A certificate is written into the Secret first, then its authority into the webhook's configuration, beside that of
the previous one; the webhook serves it from the next check on, when all API servers have the configuration. If
replicas write at the same time, the resourceVersion makes all but one fail, and these take the certificate of the
first.
"""

import base64
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import trio

from proxy.kube.api import Api, ApiFailed
from proxy.kube.certificates import CertificatePair, new_certificate
from proxy.net.io.logs import Log

__all__ = ["Rotation", "names_in"]

_EVERY_S: Final = 60.0
"""The longest interval between checks; so long an upgrade that resets the configuration may go unnoticed."""
_SOON_S: Final = 2.0
"""The interval after a failure."""
_CONFLICT: Final = (409, 422)
"""Status codes of the API for a concurrent change; 422 is that of a JSON Patch whose test fails."""


@attrs.define(eq=False)
class Rotation:
    """The rotation of a webhook's generated certificate: ``run`` renews it, ``context`` is the TLS context to use.

    The certificate is in a Secret, and its authority in the webhook's configuration, so that API servers trust it.
    """

    api: Api
    secret: str
    """The name of the Secret, in this pod's namespace. It must exist: a right to create one would allow any."""
    configuration: str
    """The name of the MutatingWebhookConfiguration."""
    life: timedelta
    now: Callable[[], datetime]
    log: Log
    pair: CertificatePair | None = attrs.field(default=None, init=False)
    """The pair that the webhook serves."""
    context: ssl.SSLContext | None = attrs.field(default=None, init=False)
    """The TLS context of ``pair``; None until there is a pair that the API server trusts."""
    _published: CertificatePair | None = attrs.field(default=None, init=False)
    """The new pair whose authority an earlier check has put into the webhook's configuration."""

    async def run(self) -> None:
        """Call ``check`` for ever: at least every minute, and within 2 s after a failure, which is logged."""
        while True:
            try:
                await self.check()
                pause_s = min(_EVERY_S, self.life.total_seconds() / 20)
            except ApiFailed as failed:
                log = self.log.debug if failed.code in _CONFLICT else self.log.warning
                log("certificate-not-stored", every_s=60, reason=failed)
                pause_s = _SOON_S if failed.code not in _CONFLICT else 0.1
            await trio.sleep(pause_s)

    async def check(self) -> None:
        """Check the certificate once, and renew it if it is due.

        A new certificate is written into the Secret, and its authority into the webhook's configuration.
        ``context`` changes to it at the next check, when all API servers trust it; if there was none, at once.

        Raises: ApiFailed: a request failed, so that changes remain for the next check.
        """
        where = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{self.configuration}"
        webhooks = await self.api.get(where)
        pair = await self._load_or_renew(names_in(webhooks, self.configuration))
        operations = list(_trust_operations(webhooks, pair.authorities))
        if operations:
            version = {"op": "test", "path": "/metadata/resourceVersion", "value": _version(webhooks)}
            await self.api.patch(where, [version, *operations])
            self.log.info("ca-bundle-updated", configuration=self.configuration)
        if pair != self.pair and self._is_known(pair):
            self.context, self.pair = pair.context(), pair
            self.log.info("certificate-served", until=pair.until().isoformat())

    def _is_known(self, pair: CertificatePair) -> bool:
        """Return whether *pair* can be served: all API servers have had the time to learn its authority.

        It can also be served if there is nothing else to serve. The pair is noted for the next check.
        """
        is_known = self.pair is None or pair == self._published or self.now() >= self.pair.until()
        self._published = pair
        return is_known

    async def _load_or_renew(self, names: Sequence[str]) -> CertificatePair:
        """Return the pair in the Secret; replace it by a generated one if it is due, or if there is none."""
        where = f"/api/v1/namespaces/{self.api.namespace()}/secrets/{self.secret}"
        secret = await self.api.get(where)
        pair = CertificatePair.read(secret.get("data") or {})
        if pair is not None and not pair.is_due(self.now(), names):
            return pair
        fresh = new_certificate(names, self.now(), self.life, pair)
        change = {"metadata": {"resourceVersion": _version(secret)}, "data": fresh.as_data()}
        await self.api.merge(where, change)
        self.log.info("certificate-created", names=",".join(names), until=fresh.until().isoformat())
        return fresh


def names_in(configuration: Mapping[str, Any], name: str) -> list[str]:
    """Return the host names at which the API server calls the webhooks of a MutatingWebhookConfiguration, sorted.

    Args:   configuration: the decoded object; name: its name, for the message.
    Raises: ApiFailed: it has no webhooks.
    """
    names = {_host(each["clientConfig"]) for each in configuration.get("webhooks") or ()}
    if not names:
        raise ApiFailed(f"MutatingWebhookConfiguration {name} has no webhooks")
    return sorted(names)


def _host(client: Mapping[str, Any]) -> str:
    service = client.get("service")
    return f"{service['name']}.{service['namespace']}.svc" if service else urlsplit(client["url"]).hostname or ""


def _trust_operations(configuration: Mapping[str, Any], authorities: bytes) -> Iterator[dict[str, Any]]:
    bundle = base64.b64encode(authorities).decode()
    for index, each in enumerate(configuration["webhooks"]):
        if each["clientConfig"].get("caBundle") != bundle:
            yield {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}


def _version(thing: Mapping[str, Any]) -> str:
    return str(thing["metadata"]["resourceVersion"])
