"""Keeps a certificate made here good: in a Secret that all replicas share, and believed by the API server.

A certificate is written into the Secret first, then its authority into the webhook's configuration, beside that of
the one before; it is shown at the next look after that, when all API servers have heard of it. Replicas that are at
it at once find by the resourceVersion that another was first, and take what that one has made.
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
"""Between looks: what others have changed, such as an upgrade that reset the configuration, is found so soon."""
_SOON_S: Final = 2.0
"""After something failed."""
_CONFLICT: Final = (409, 422)
"""Somebody else was first; for a JSON Patch whose test fails it is the second."""


@attrs.define(eq=False)
class Rotation:
    """Of one certificate."""

    api: Api
    secret: str
    """The Secret's name, in this pod's namespace. It must be there: who may make one may make any."""
    configuration: str
    """The MutatingWebhookConfiguration's."""
    life: timedelta
    now: Callable[[], datetime]
    log: Log
    pair: CertificatePair | None = attrs.field(default=None, init=False)
    """What is shown."""
    context: ssl.SSLContext | None = attrs.field(default=None, init=False)
    """How to show it; None until there is one that the API server believes."""
    _told: CertificatePair | None = attrs.field(default=None, init=False)
    """What the API server was told of at the last look."""

    async def run(self) -> None:
        """Look for ever."""
        while True:
            try:
                await self.look()
                pause_s = min(_EVERY_S, self.life.total_seconds() / 20)
            except ApiFailed as failed:
                told = self.log.debug if failed.code in _CONFLICT else self.log.warning
                told("certificate-not-stored", every_s=60, reason=failed)
                pause_s = _SOON_S if failed.code not in _CONFLICT else 0.1
            await trio.sleep(pause_s)

    async def look(self) -> None:
        """Do once what is to be done. Raises: ApiFailed: some of it is left to do."""
        where = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{self.configuration}"
        webhooks = await self.api.get(where)
        pair = await self._kept(names_in(webhooks, self.configuration))
        operations = list(_believing(webhooks, pair.authorities))
        if operations:
            version = {"op": "test", "path": "/metadata/resourceVersion", "value": _version(webhooks)}
            await self.api.patch(where, [version, *operations])
            self.log.info("ca-bundle-updated", configuration=self.configuration)
        if pair != self.pair and self._is_known(pair):
            self.context, self.pair = pair.context(), pair
            self.log.info("certificate-served", until=pair.until().isoformat())

    def _is_known(self, pair: CertificatePair) -> bool:
        """Whether all API servers have had the time to hear of *pair*'s authority, or none could know less."""
        is_known = self.pair is None or pair == self._told or self.now() >= self.pair.until()
        self._told = pair
        return is_known

    async def _kept(self, names: Sequence[str]) -> CertificatePair:
        """What the Secret holds; made where it holds none that is good for long enough."""
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
    """The hosts by which the API server comes, as its configuration says. Raises: ApiFailed: it names none."""
    names = {_host(each["clientConfig"]) for each in configuration.get("webhooks") or ()}
    if not names:
        raise ApiFailed(f"MutatingWebhookConfiguration {name} has no webhooks")
    return sorted(names)


def _host(client: Mapping[str, Any]) -> str:
    service = client.get("service")
    return f"{service['name']}.{service['namespace']}.svc" if service else urlsplit(client["url"]).hostname or ""


def _believing(configuration: Mapping[str, Any], authorities: bytes) -> Iterator[dict[str, Any]]:
    bundle = base64.b64encode(authorities).decode()
    for index, each in enumerate(configuration["webhooks"]):
        if each["clientConfig"].get("caBundle") != bundle:
            yield {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": bundle}


def _version(thing: Mapping[str, Any]) -> str:
    return str(thing["metadata"]["resourceVersion"])
