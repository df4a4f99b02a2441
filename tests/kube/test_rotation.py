"""Certificates that the webhook issues, and their renewal.

The API is one in memory, which can be made to fail; ``test_api_server`` has a real one.
"""

import base64
import io
import ssl
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from cryptography import x509

from proxy.kube.api import Api, ApiFailed
from proxy.kube.certificates import CertificatePair, new_certificate
from proxy.kube.patch import Operation, apply
from proxy.kube.rotation import Rotation, names_in
from proxy.net.io.logs import Log

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LIFE = timedelta(days=90)
SECRET = "/api/v1/namespaces/sidefetch/secrets"
CONFIGURATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hook"
NAMES = ["sidefetch.sidefetch.svc"]


@attrs.define(slots=False)
class Memory(Api):
    """The used part of the API, with its conflicts."""

    url: str = ""
    account: Path = Path()
    things: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    asked: list[str] = attrs.field(factory=list)
    fails: set[str] = attrs.field(factory=set)
    """The requests that are answered with 500."""

    def namespace(self) -> str:
        return "sidefetch"

    async def get(self, path: str) -> dict[str, Any]:
        await self._seen("GET", path)
        if path not in self.things:
            raise ApiFailed("not found", 404)
        return deepcopy(self.things[path])

    async def merge(self, path: str, change: Any) -> None:
        await self._seen("PATCH", path)
        if change["metadata"]["resourceVersion"] != self.things[path]["metadata"]["resourceVersion"]:
            raise ApiFailed("conflict", 409)
        self.put(path, {**self.things[path], "data": change["data"]})

    async def patch(self, path: str, operations: list[dict[str, Any]]) -> None:
        await self._seen("PATCH", path)
        thing = deepcopy(self.things[path])
        for each in operations:
            steps = tuple(int(step) if step.isdigit() else step for step in each["path"].split("/")[1:])
            if each["op"] == "test":
                if thing["metadata"]["resourceVersion"] != each["value"]:
                    raise ApiFailed("the test failed", 422)
            else:
                apply(thing, iter([Operation("replace", steps, each["value"])]))
        self.put(path, thing)

    def put(self, path: str, thing: dict[str, Any]) -> None:
        version = str(int(thing["metadata"].get("resourceVersion", "0")) + 1)
        self.things[path] = {**thing, "metadata": {**thing["metadata"], "resourceVersion": version}}

    async def _seen(self, method: str, path: str) -> None:
        await trio.lowlevel.checkpoint()
        self.asked.append(f"{method} {path.rpartition('/')[2]}")
        if f"{method} {path}" in self.fails:
            raise ApiFailed("internal", 500)

    @property
    def believed(self) -> bytes:
        (webhook,) = self.things[CONFIGURATION]["webhooks"]
        return base64.b64decode(webhook["clientConfig"].get("caBundle", ""))


@pytest.fixture
def api() -> Memory:
    memory = Memory()
    client = {"service": {"name": "sidefetch", "namespace": "sidefetch", "path": "/inject"}}
    memory.put(
        CONFIGURATION, {"metadata": {"name": "hook"}, "webhooks": [{"name": "a.b.c", "clientConfig": client}]}
    )
    memory.put(f"{SECRET}/pair", {"metadata": {"name": "pair"}})
    memory.asked.clear()
    return memory


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def rotation(api: Memory, clock: Clock) -> Rotation:
    return Rotation(api, "pair", "hook", LIFE, clock, Log("text", "debug", io.StringIO()))


def trusted(pair: CertificatePair, authorities: bytes, name: str) -> bool:
    """Whether a client that believes *authorities* takes *pair* for *name*: by a handshake in memory."""
    client = ssl.create_default_context(cadata=authorities.decode())
    ends = [ssl.MemoryBIO() for _ in range(2)]
    ours = pair.context().wrap_bio(ends[0], ends[1], server_side=True)
    theirs = client.wrap_bio(ends[1], ends[0], server_hostname=name)
    try:
        for _ in range(3):
            for each in (theirs, ours):
                with suppress(ssl.SSLWantReadError):
                    each.do_handshake()
        return theirs.cipher() is not None
    except ssl.SSLCertVerificationError:
        return False


@pytest.mark.parametrize("name", ["sidefetch.sidefetch.svc", "127.0.0.1"])
def test_certificate_is_trusted_only_for_its_names_and_with_its_authority(name: str) -> None:
    today = datetime.now(UTC).replace(microsecond=0)
    pair, other = (new_certificate([name], today, LIFE) for _ in range(2))

    assert trusted(pair, pair.authorities, name)
    assert not trusted(pair, pair.authorities, "elsewhere.svc")
    assert not trusted(pair, other.authorities, name)


def test_the_authoritys_key_is_nowhere_and_the_pairs_is_not_shown() -> None:
    pair = new_certificate(NAMES, NOW, LIFE)

    (authority,) = x509.load_pem_x509_certificates(pair.authorities)
    assert pair.key.count(b"BEGIN") == 1
    assert x509.load_pem_x509_certificate(pair.cert).public_key() != authority.public_key()
    assert b"PRIVATE" not in pair.authorities + pair.cert
    assert "PRIVATE" not in repr(pair)


def test_certificate_pair_survives_storage_in_secret_and_damaged_data_yields_none() -> None:
    pair, other = new_certificate(NAMES, NOW, LIFE), new_certificate(NAMES, NOW, LIFE)
    data = pair.as_data()

    assert CertificatePair.read(data) == pair
    assert CertificatePair.read({}) is None
    assert CertificatePair.read({**data, "tls.key": other.as_data()["tls.key"]}) is None
    assert CertificatePair.read({**data, "ca.crt": "?"}) is None
    assert CertificatePair.read({**data, "tls.crt": None}) is None


def test_it_is_renewed_after_two_thirds_of_its_time_or_for_other_names() -> None:
    pair = new_certificate(NAMES, NOW, LIFE)

    assert not pair.is_due(NOW + LIFE * 0.66, NAMES)
    assert pair.is_due(NOW + LIFE * 0.67, NAMES)
    assert pair.is_due(NOW, ["other.svc"])


def test_authorities_stay_until_they_end() -> None:
    first = new_certificate(NAMES, NOW, LIFE)
    second = new_certificate(NAMES, NOW + LIFE * 0.7, LIFE, first)
    third = new_certificate(NAMES, NOW + LIFE * 1.4, LIFE, second)

    counts = [len(x509.load_pem_x509_certificates(each.authorities)) for each in (first, second, third)]
    assert counts == [1, 2, 2]
    assert second.authorities.endswith(first.authorities)


async def test_certificate_is_stored_then_published_to_webhook_then_used(api: Memory, clock: Clock) -> None:
    ours = rotation(api, clock)

    await ours.check()

    assert api.asked == ["GET hook", "GET pair", "PATCH pair", "PATCH hook"]
    assert ours.pair is not None
    assert CertificatePair.read(api.things[f"{SECRET}/pair"]["data"]) == ours.pair
    assert api.believed == ours.pair.authorities
    assert (
        x509.load_pem_x509_certificate(ours.pair.cert)
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value.get_values_for_type(x509.DNSName)
        == NAMES
    )


async def test_nothing_is_done_while_all_is_good(api: Memory, clock: Clock) -> None:
    ours = rotation(api, clock)
    await ours.check()
    api.asked.clear()
    first = ours.context

    clock.now += LIFE / 2
    await ours.check()

    assert api.asked == ["GET hook", "GET pair"]
    assert ours.context is first


@pytest.mark.parametrize("failing", ["PATCH " + CONFIGURATION, f"PATCH {SECRET}/pair"])
async def test_renewed_certificate_is_used_only_after_publication(api: Memory, clock: Clock, failing: str) -> None:
    ours = rotation(api, clock)
    await ours.check()
    first = ours.pair
    assert first is not None
    clock.now += LIFE * 0.7
    api.fails.add(failing)

    with pytest.raises(ApiFailed):
        await ours.check()
    assert ours.pair == first
    assert first.authorities in api.believed

    api.fails.clear()
    await ours.check()
    await ours.check()
    assert ours.pair not in (None, first)
    assert first.authorities in api.believed


async def test_running_webhooks_use_renewed_certificate_one_check_after_its_publication(
    api: Memory, clock: Clock
) -> None:
    makes_it, finds_it = (rotation(api, clock) for _ in range(2))
    for each in (makes_it, finds_it):
        await each.check()
    first = makes_it.pair
    clock.now += LIFE * 0.7

    for each in (makes_it, finds_it):
        await each.check()
    late = rotation(api, clock)
    await late.check()

    assert makes_it.pair == finds_it.pair == first
    assert late.pair not in (None, first)
    for each in (makes_it, finds_it):
        await each.check()
    assert makes_it.pair == finds_it.pair == late.pair


async def test_one_that_has_ended_is_shown_no_longer_than_there_is_another(api: Memory, clock: Clock) -> None:
    ours = rotation(api, clock)
    await ours.check()
    first = ours.pair
    clock.now += LIFE

    await ours.check()

    assert ours.pair != first


async def test_concurrently_started_webhooks_use_the_same_certificate(api: Memory, clock: Clock) -> None:
    ones = [rotation(api, clock) for _ in range(2)]

    async with trio.open_nursery() as nursery:
        for each in ones:
            nursery.start_soon(each.run)
        with trio.fail_after(5):
            while not all(each.context for each in ones):
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()

    assert ones[0].pair == ones[1].pair
    assert ones[0].pair is not None
    assert api.believed == ones[0].pair.authorities


async def test_stale_secret_update_conflicts_and_existing_certificate_is_kept(api: Memory, clock: Clock) -> None:
    ours = rotation(api, clock)
    stale = await api.get(f"{SECRET}/pair")
    others = new_certificate(NAMES, NOW, LIFE)
    await api.merge(f"{SECRET}/pair", {"metadata": stale["metadata"], "data": others.as_data()})
    current = await api.get(f"{SECRET}/pair")

    with pytest.raises(ApiFailed, match="conflict"):
        await api.merge(f"{SECRET}/pair", {"metadata": stale["metadata"], "data": {}})
    await ours.check()

    assert ours.pair == others
    assert await api.get(f"{SECRET}/pair") == current


async def test_ca_bundle_is_restored_in_a_reset_webhook_configuration(api: Memory, clock: Clock) -> None:
    ours = rotation(api, clock)
    await ours.check()
    del api.things[CONFIGURATION]["webhooks"][0]["clientConfig"]["caBundle"]

    await ours.check()

    assert ours.pair is not None
    assert api.believed == ours.pair.authorities


@pytest.mark.parametrize(
    ("webhooks", "names"),
    [
        ([{"clientConfig": {"service": {"name": "s", "namespace": "n"}}}] * 2, ["s.n.svc"]),
        ([{"clientConfig": {"url": "https://10.0.0.1:9443/inject"}}], ["10.0.0.1"]),
    ],
)
def test_its_names_are_those_by_which_the_api_server_comes(webhooks: list[Any], names: list[str]) -> None:
    assert names_in({"webhooks": webhooks}, "hook") == names


@pytest.mark.parametrize("webhooks", [None, []])
def test_webhook_configuration_without_webhooks_is_reported(webhooks: Any) -> None:
    with pytest.raises(ApiFailed, match="hook has no webhooks"):
        names_in({"webhooks": webhooks}, "hook")


def test_outside_of_a_pod_there_is_no_api(tmp_path: Path) -> None:
    assert Api.of_this_pod({}) is None
    api = Api.of_this_pod({"KUBERNETES_SERVICE_HOST": "::1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)
    assert api is not None
    assert api.url == "https://[::1]:6443"
    with pytest.raises(ApiFailed, match="no service account"):
        api.namespace()
