"""The limits for clients: each is enforced, logged with its remedy, and affects no other client."""

import io
import socket
import struct
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import attrs
import pytest
import trio

from proxy.config import Address, Config, LimitsConfig
from proxy.config.allowed_apis import AllowedApis
from proxy.demo.client import KafkaConnection
from proxy.demo.cluster import embedded_cluster
from proxy.demo.messages import encode_request
from proxy.errors import LimitReached
from proxy.net.downstream.client import ClientConnection
from proxy.net.downstream.limits import ConnectionActivity, ConnectionLimits, Deadlines, LimitLog
from proxy.net.io.logs import Log
from proxy.net.io.memory import Budget
from proxy.wire.apis import ApiKey
from proxy.wire.primitives import write_tags
from tests.net.proxied import Proxied, ask, configured, hung_up_on, limits_logged, running
from tests.ports import open_ends

QUIET = ConnectionActivity(
    frames=1,
    is_at_boundary=True,
    is_reading=True,
    received_bytes=10,
    is_in_claimed=False,
    sent_bytes=10,
    has_unsent=False,
    is_response_due=False,
)
SIZE = 1 << 20


@asynccontextmanager
async def limited(**limits: Any) -> AsyncIterator[Proxied]:
    """A proxy with these limits; a client that keeps to them is served before and after."""
    async with embedded_cluster() as cluster:
        cluster.create_topic("t", 3, assignment=[[1, 2, 3]] * 3)
        config: Config = attrs.evolve(configured(cluster.bootstrap), limits=LimitsConfig(**limits))
        async with running(cluster, config) as it:
            yield it


async def is_served(client: KafkaConnection) -> bool:
    response = await client.call("fetch", 11, ask({1: 0}))
    return [int(each.error_code) for each in response.responses[0].partitions] == [0]


async def unclaimed(budget: Budget) -> None:
    """Wait until it is all there again."""
    with trio.fail_after(5):
        while budget.claimed_bytes:
            await trio.sleep(0.05)


# ---------------------------------------------------------------------------------------------- who is let in


async def test_one_connection_too_many_is_closed_and_the_others_go_on() -> None:
    async with limited(max_connections=2) as it, it.client(1) as one:
        async with it.client(1) as other:
            assert await is_served(one)
            assert await is_served(other)
            async with it.client(1) as third:
                assert await hung_up_on(third)
            assert await is_served(one)
            assert await is_served(other)
        await trio.sleep(0.1)
        async with it.client(1) as next_one:
            assert await is_served(next_one)
        assert it.proxy.counts["limit_max_connections"] == 1
        assert len(limits_logged(it, "max-connections")) == 1


async def test_a_host_may_be_let_in_less_often_than_all() -> None:
    async with limited(max_connections_per_peer=1) as it, it.client(1) as one:
        async with it.client(1) as other:
            assert await hung_up_on(other)
        assert await is_served(one)
        assert it.proxy.counts["limit_max_connections_per_peer"] == 1
        assert len(limits_logged(it, "max-connections-per-peer")) == 1


def test_each_host_has_a_count_of_its_own_and_none_is_kept_of_those_that_left() -> None:
    reported: Counter[str] = Counter()
    log = Log("text", "info", io.StringIO())
    admission = ConnectionLimits(
        LimitsConfig(max_connections=3, max_connections_per_peer=2), LimitLog(reported, log)
    )

    entered = [admission.try_add(peer) for peer in ("a:1", "a:2", "a:3", "[::1]:1", "b:1")]
    assert entered == [True, True, False, True, False]
    assert reported == {"limit_max_connections_per_peer": 1, "limit_max_connections": 1}
    for peer in ("a:1", "a:2", "[::1]:1"):
        admission.remove(peer)
    assert admission.count == 0
    assert admission.try_add("a:4")
    assert admission.try_add("a:5")


# --------------------------------------------------------------------------------------------------- timeouts


async def test_handshake_timeout_disconnects_silent_client_but_not_waiting_fetch() -> None:
    async with limited(handshake_timeout_s=0.4) as it, it.client(1) as waiting, it.client(1) as mute:
        await waiting.send("fetch", 11, ask({0: 0}, max_wait=1500))
        assert await hung_up_on(mute)
        assert (await waiting.receive()).responses
        assert it.proxy.counts["limit_handshake_timeout"] == 1
        assert len(limits_logged(it, "handshake-timeout")) == 1


@pytest.mark.parametrize("size", [100, SIZE], ids=["small", "large"])
async def test_a_request_that_dribbles_in_is_not_waited_for(size: int) -> None:
    async with limited(request_timeout_s=0.5) as it, it.client(1) as good, it.client(1) as slow:
        assert await is_served(slow)
        await slow.send_frame(size.to_bytes(4))
        with trio.fail_after(5):
            try:
                while True:
                    await slow.send_frame(b"\0")
                    await trio.sleep(0.05)
            except ConnectionResetError:
                pass
        assert await is_served(good)
        assert it.proxy.counts["limit_request_timeout"] == 1
        assert len(limits_logged(it, "request-timeout")) == 1


async def test_idle_timeout_disconnects_idle_client_but_not_waiting_fetch() -> None:
    async with limited(idle_timeout_s=0.5) as it, it.client(1) as silent, it.client(1) as waiting:
        assert await is_served(silent)
        await waiting.send("fetch", 11, ask({0: 0}, max_wait=1500))
        assert await hung_up_on(silent)
        assert (await waiting.receive()).responses
        assert it.proxy.counts["limit_idle_timeout"] == 1
        assert all(" info " in line for line in limits_logged(it, "idle-timeout"))


async def test_send_timeout_releases_memory_of_client_that_stops_reading() -> None:
    async with limited(send_timeout_s=0.6) as it, it.client(1) as good, it.client(1) as stuck:
        it.cluster.append("t", 0, [bytes(SIZE - 1000)] * 12)
        options: dict[str, Any] = {"max_bytes": 12 * SIZE}
        for offset in range(0, 12, 4):
            request = ask({0: offset}, **options)
            request["topics"][0]["partitions"][0]["partition_max_bytes"] = 12 * SIZE
            await stuck.send("fetch", 11, request)
        with trio.fail_after(8):
            while not it.proxy.counts["limit_send_timeout"]:
                await trio.sleep(0.05)
        assert await is_served(good)
        assert len(limits_logged(it, "send-timeout")) == 1
        await unclaimed(it.proxy.services.budget)


def overdue(looks: list[tuple[float, ConnectionActivity]], **limits: float) -> list[str | None]:
    deadlines = Deadlines(LimitsConfig(**limits), 0.0)  # type: ignore[arg-type]
    reached = [deadlines.find_expired(look, now_s) for now_s, look in looks]
    return [None if each is None else each.limit for each in reached]


def test_a_request_is_timed_from_its_own_beginning() -> None:
    partly = attrs.evolve(QUIET, is_at_boundary=False)
    more = attrs.evolve(partly, frames=2)

    assert overdue([(1, QUIET), (20, partly), (45, more), (70, more), (75, more)]) == [
        *[None] * 4,
        "request-timeout",
    ]


def test_a_request_that_waits_for_us_is_not_timed() -> None:
    held_up = attrs.evolve(QUIET, is_at_boundary=False, is_reading=False)

    assert overdue([(1, QUIET), (50, held_up), (100, held_up)]) == [None] * 3


def slow(arrived_bytes: int, **more: Any) -> ConnectionActivity:
    """Return a snapshot of a client in a large request, of which these bytes have arrived."""
    activity = attrs.evolve(QUIET, is_at_boundary=False, is_in_claimed=True, received_bytes=arrived_bytes)
    return attrs.evolve(activity, **more)


@pytest.mark.parametrize(
    ("looks", "is_short", "is_closed"),
    [
        ([slow(90_000), slow(90_100), slow(90_200)], True, True),
        ([slow(90_000), slow(120_000), slow(155_600)], True, False),
        ([slow(90_000), slow(90_100), slow(90_200)], False, False),
        ([slow(90_000), slow(90_100, is_in_claimed=False), slow(90_200)], True, False),
        ([slow(90_000), slow(90_100, is_reading=False), slow(90_200)], True, False),
    ],
    ids=["trickles", "arrives", "memory suffices", "holds no memory", "waits itself"],
)
def test_large_requests_must_arrive_while_others_wait_for_memory(
    looks: list[ConnectionActivity], is_short: bool, is_closed: bool
) -> None:
    deadlines = Deadlines(LimitsConfig(), 0.0)
    for now_s, activity in enumerate(looks):
        reached = deadlines.find_expired(activity, float(now_s), is_memory_short=is_short)

    assert (reached is not None and reached.limit == "request-memory") == is_closed


def test_a_client_that_reads_slowly_is_not_stuck_but_one_that_takes_single_bytes_is() -> None:
    times = (1, 290, 400, 690, 701)
    reading = [attrs.evolve(QUIET, has_unsent=True, sent_bytes=sent) for sent in (10, 10, 70_000, 135_000, 200_000)]
    trickle = [attrs.evolve(QUIET, has_unsent=True, sent_bytes=sent) for sent in (10, 10, 70_000, 70_150, 70_156)]

    assert overdue(list(zip(times, reading, strict=True))) == [None] * 5
    assert overdue(list(zip(times, trickle, strict=True))) == [*[None] * 4, "send-timeout"]


def test_idle_timeout_does_not_apply_while_a_response_is_due() -> None:
    owed = attrs.evolve(QUIET, is_response_due=True)

    assert overdue([(1, QUIET), (900, owed), (1400, QUIET), (1500, QUIET)]) == [*[None] * 3, "idle-timeout"]


# ------------------------------------------------------------------------------------------- what is asked for


async def test_a_fetch_of_too_much_ends_its_connection_only() -> None:
    async with limited(max_fetch_partitions=2) as it, it.client(1) as good, it.client(1) as greedy:
        assert await is_served(good)
        await greedy.send("fetch", 11, ask({0: 0, 1: 0, 2: 0}))
        assert await hung_up_on(greedy)
        assert await is_served(good)
        assert it.proxy.counts["limit_max_fetch_partitions"] == 1
        assert len(limits_logged(it, "max-fetch-partitions")) == 1


async def test_a_fetch_of_too_many_tagged_fields_ends_its_connection_only() -> None:
    tags = write_tags([(tag, b"") for tag in range(10_000)])
    entries = b"".join(struct.pack(">iiqiqi", n, -1, 0, -1, -1, 100) + tags for n in range(20))
    front = struct.pack(">hhih1sxiiiibii", ApiKey.FETCH, 12, 7, 1, b"c", -1, 20, 1, SIZE, 0, 0, -1)
    request = front + b"\2\2t\x15" + entries + b"\0\1\1\0"
    async with limited() as it, it.client(1) as good, it.client(1) as greedy:
        assert await is_served(good)
        await greedy.send_frame(len(request).to_bytes(4) + request)
        assert await hung_up_on(greedy)
        assert await is_served(good)
        assert "tagged fields at" in it.logged("client-protocol-error")[0]


async def test_client_whose_session_exceeds_max_fetch_partitions_is_disconnected() -> None:
    async with limited(max_fetch_partitions=2) as it, it.client(1) as greedy:
        response = await greedy.call("fetch", 11, ask({0: 0, 1: 0}, session_epoch=0))
        held = {"session_id": response.session_id, "session_epoch": 1}
        await greedy.send("fetch", 11, ask({2: 0}, **held))
        assert await hung_up_on(greedy)
        assert it.proxy.counts["limit_max_fetch_partitions"] == 1
        assert len(it.proxy.client_sessions) == 0


async def test_client_that_uses_an_api_that_is_not_allowed_is_disconnected() -> None:
    async with limited(allowed_apis=AllowedApis.parse("Fetch")) as it, it.client(1) as good, it.client(1) as greedy:
        offered = {each.api_key for each in (await greedy.call("api_versions", 0, {})).api_keys}
        await greedy.send("list_offsets", 1, {"replica_id": -1, "topics": []})
        assert await hung_up_on(greedy)
        assert await is_served(good)
        assert offered == {ApiKey.FETCH, ApiKey.METADATA, ApiKey.API_VERSIONS}
        assert any("ListOffsets is not one of allowed-apis" in line for line in it.logged("client-protocol-error"))


async def test_a_request_that_is_too_large_is_a_limit_and_not_read() -> None:
    async with limited() as it, it.client(1) as greedy:
        await greedy.send_frame((200 * SIZE).to_bytes(4))
        assert await hung_up_on(greedy)
        assert it.proxy.counts["limit_max_frame"] == 1
        assert len(limits_logged(it, "max-frame")) == 1


async def test_many_coordinators_in_one_response_have_addresses_of_this_host() -> None:
    keys = [f"group-{number}" for number in range(5_000)]
    async with limited() as it, it.client(1) as client:
        with trio.fail_after(30):
            found = await client.call("find_coordinator", 4, {"coordinator_keys": keys, "key_type": 0})

        assert [each.key for each in found.coordinators] == keys
        assert {(each.host, each.port - it.port_of(each.node_id)) for each in found.coordinators} == {
            ("127.0.0.1", 0)
        }


async def test_a_fetch_of_more_bytes_than_its_partitions_need_is_a_limit_and_not_read() -> None:
    async with limited() as it, it.client(1) as good, it.client(1) as greedy:
        assert await is_served(good)
        await greedy.send_frame((20 * SIZE).to_bytes(4) + struct.pack(">hh", ApiKey.FETCH, 12))
        assert await hung_up_on(greedy)
        assert await is_served(good)
        assert it.proxy.counts["limit_max_fetch_partitions"] == 1
        assert "a fetch of 20971520 bytes" in limits_logged(it, "max-fetch-partitions")[0]
        assert it.proxy._acceptor._request_budget.claimed_bytes == 0


@pytest.mark.parametrize("api_key", [ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, 0x6082, -1])
async def test_a_sasl_request_or_token_of_over_512_kib_is_not_read(api_key: int) -> None:
    async with limited() as it, it.client(1) as good, it.client(1) as greedy:
        assert await is_served(good)
        await greedy.send_frame((SIZE // 2 + 1).to_bytes(4) + struct.pack(">hh", api_key, 0))
        assert await hung_up_on(greedy)
        assert await is_served(good)
        assert "of 524289 bytes, 524288 are allowed" in it.logged("client-protocol-error")[0]


async def test_max_in_flight_delays_pipelined_requests_and_all_get_responses() -> None:
    async with limited(max_in_flight=2) as it, it.client(1) as eager:
        requests = [encode_request(ApiKey.METADATA, 1, number, "c", {"topics": []}) for number in range(20)]
        await eager.send_frame(b"".join(requests))
        for number in range(20):
            frame = await eager.receive_frame()
            assert frame is not None
            assert int.from_bytes(frame[:4]) == number
        assert it.proxy.counts["limit_max_in_flight"] > 0
        assert len(limits_logged(it, "max-in-flight")) == 1


async def test_requests_are_not_read_while_client_reads_no_responses() -> None:
    """Answers that Sidefetch makes by itself cost no broker's time, so nothing else would hold them up."""
    async with limited() as it, it.client(1) as deaf:
        assert await is_served(deaf)
        (client,) = it.proxy.clients
        client._client._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        assert isinstance(deaf.stream, trio.SocketStream)
        deaf.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unknown = encode_request(ApiKey.API_VERSIONS, 0, 1, "c", {})
        unknown = unknown[:6] + (99).to_bytes(2) + unknown[8:]

        async def flood() -> None:
            while True:
                await deaf.send_frame(unknown * 1000)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            with trio.fail_after(20):
                while not client._outbox._pieces:
                    await trio.sleep(0.05)
            await trio.sleep(1)
            assert len(client._outbox._pieces) < 20
            nursery.cancel_scope.cancel()


async def test_request_memory_limit_delays_requests_and_all_get_responses() -> None:
    async with limited(request_memory_bytes=SIZE) as it:
        names = [f"{'x' * 200}{number}" for number in range(4000)]

        async def produce() -> None:
            async with it.client(1) as client:
                for _ in range(3):
                    assert (
                        len((await client.call("metadata", 5, {"topics": [{"name": n} for n in names]})).topics)
                        == 4000
                    )

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(produce)
        assert it.proxy.counts["limit_request_memory"] > 0
        await unclaimed(it.proxy._acceptor._request_budget)


async def test_client_that_sends_no_more_of_a_large_request_is_closed_while_others_wait_for_memory() -> None:
    async with limited(request_memory_bytes=SIZE) as it, it.client(1) as stalled, it.client(1) as other:
        metadata = encode_request(ApiKey.METADATA, 5, 1, "c", {"topics": [{"name": "x" * 200}] * 10_000})
        await stalled.send_frame(metadata[: SIZE // 2])
        with trio.fail_after(20):
            answer = await other.call("metadata", 5, {"topics": [{"name": "x" * 200}] * 4000})
            assert len(answer.topics) == 4000
            assert await hung_up_on(stalled)
        (line,) = limits_logged(it, "request-memory")
        assert "0 bytes of a large request in 2 s, while others wait" in line


async def test_large_fetches_of_clients_that_rest_hold_none_of_the_requests_memory() -> None:
    """Check that requests kept between fetches do not count: nothing would ever free their memory."""
    async with limited(request_memory_bytes=SIZE) as it, trio.open_nursery() as nursery:
        offsets = dict.fromkeys(range(15_000), 0)

        async def rest(task_status: trio.TaskStatus[None]) -> None:
            async with it.client(1) as client:
                response = await client.call("fetch", 11, ask(offsets))
                assert len(response.responses[0].partitions) == 15_000
                task_status.started()
                await trio.sleep_forever()

        with trio.fail_after(120):
            for _ in range(5):
                await nursery.start(rest)
            async with it.client(1) as last:
                await last.call("fetch", 11, ask(offsets))
        nursery.cancel_scope.cancel()


async def test_reached_limit_log_is_rate_limited_by_limit_and_host() -> None:
    stream, counts = io.StringIO(), Counter[str]()
    limit_log = LimitLog(counts, Log("text", "info", stream))
    for port in range(100):
        limit_log("max-connections", f"10.0.0.1:{port}", "there are 7 connections")
    limit_log("max-connections", "10.0.0.2:1", "there are 7 connections")
    limit_log("max-frame", "10.0.0.1:1", "large")

    assert counts == {"limit_max_connections": 101, "limit_max_frame": 1}
    assert len(stream.getvalue().splitlines()) == 3


def test_an_error_names_its_option() -> None:
    assert LimitReached("max-frame", "large").limit == "max-frame"


async def test_silent_connections_open_none_to_brokers() -> None:
    async with limited(handshake_timeout_s=1) as it, AsyncExitStack() as silent:
        for _ in range(20):
            await silent.enter_async_context(it.client())
        async with it.client() as asking:
            await asking.call("metadata", 5, {})
            ports = [Address.parse(each).port for each in it.cluster.bootstrap.split(",")]
            assert sum(map(open_ends, ports)) <= 2 * 2, "those of the topology and of the client that asks"
            with trio.fail_after(30):
                while it.proxy.counts["limit_handshake_timeout"] < 20:
                    await trio.sleep(0.05)


async def test_small_requests_of_one_client_do_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that requests that arrive together are handled in several turns of the event loop."""
    turn, handled = 0, list[int]()
    take = ClientConnection._take

    class Turns(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:  # noqa: ARG002
            nonlocal turn
            turn += 1

    def count(self: ClientConnection, frame: memoryview) -> None:
        handled.append(turn)
        take(self, frame)

    monkeypatch.setattr("proxy.net.downstream.client._TURN_S", 0.0)
    monkeypatch.setattr(ClientConnection, "_take", count)
    async with limited() as it, it.client(1) as client:
        trio.lowlevel.add_instrument(Turns())
        await client.send_frame(encode_request(ApiKey.API_VERSIONS, 0, 1, "c", {}) * 300)
        for _ in range(300):
            assert await client.receive_frame() is not None

    assert len(handled) >= 300
    assert max(Counter(handled).values()) <= 2
