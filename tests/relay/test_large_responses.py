"""Large responses with broker addresses: they are replaced in a thread, and in their order."""

from typing import Any

import pytest

from proxy.demo.messages import encode_request, encode_response
from proxy.errors import BrokerProtocolError
from proxy.fetch_rules import FetchRules
from proxy.relay.commands import PASS, Command, LinkFrame, LinkLost, RunInThread, ThreadFinished
from proxy.wire import messages
from proxy.wire.apis import ApiKey
from tests.relay.logging_in import METADATA, replies
from tests.relay.playbook import TOPIC_ID, Play, of_type

KEYS = [f"group-{number}" for number in range(1_000)]


def find(correlation_id: int = 1) -> bytes:
    return encode_request(
        ApiKey.FIND_COORDINATOR, 4, correlation_id, "c", {"coordinator_keys": KEYS, "key_type": 0}
    )


def found(keys: list[str], nodes: int = 3, correlation_id: int = 1) -> bytes:
    """The broker's answer, without its size; node 0 stands for none."""
    listed = [
        {"key": key, "node_id": node or -1, "host": "broker.internal" if node else "", "port": 19_000 + node}
        for number, key in enumerate(keys)
        for node in [number % (nodes + 1)]
    ]
    return encode_response(ApiKey.FIND_COORDINATOR, 4, correlation_id, {"coordinators": listed})[4:]


def asked() -> Play:
    play = Play(works=False)
    play.request(find())
    play.open(PASS)
    return play


def answer(play: Play, payload: bytes) -> list[Command]:
    return play.handle(LinkFrame(PASS, memoryview(payload)))


def run(play: Play, commands: list[Command]) -> list[Command]:
    (work,) = of_type(RunInThread, commands)
    return play.handle(ThreadFinished(work.worker, work.run()))


def coordinators(reply: bytes) -> list[Any]:
    kind = messages.response_type(ApiKey.FIND_COORDINATOR, 4)
    return list(messages.read_response(kind, reply[4:])[1].coordinators)


def test_addresses_of_a_large_response_are_replaced_in_a_thread_and_mapped_outside() -> None:
    play = asked()
    mapped: list[int] = []

    def map_address(node_id: int, _: str, __: int) -> tuple[str, int]:
        mapped.append(node_id)
        return "here", node_id

    play.relay.relay._pass_through._map_address = map_address

    finding = answer(play, found(KEYS))
    assert (replies(finding), mapped) == ([], [])
    replacing = run(play, finding)
    assert (replies(replacing), sorted(mapped)) == ([], [1, 2, 3])
    (reply,) = replies(run(play, replacing))

    expected = [(key, number % 4 or -1) for number, key in enumerate(KEYS)]
    assert [(each.key, each.node_id) for each in coordinators(reply)] == expected
    assert {(each.host, each.port) for each in coordinators(reply)} == {
        ("", 19_000),
        *(("here", n) for n in mapped),
    }
    assert len(mapped) == 3


def test_large_response_that_names_no_broker_takes_one_thread() -> None:
    play = asked()

    (reply,) = replies(run(play, answer(play, found(KEYS, nodes=0))))

    assert len(coordinators(reply)) == len(KEYS)


def test_leaders_of_a_large_forwarded_fetch_response_are_replaced_in_threads() -> None:
    play = Play(works=False)
    play.bypass = FetchRules.parse("all")
    play.open(PASS)
    play.fetch({0: 0}, version=16)
    partitions = [{"partition_index": number, "records": None} for number in range(1_000)]
    leader = {"node_id": 2, "host": "broker.internal", "port": 19_002, "rack": None}
    values = {
        "responses": [{"topic_id": TOPIC_ID, "partitions": partitions}],
        "node_endpoints": [leader],
    }

    finding = answer(play, encode_response(ApiKey.FETCH, 16, 1, values)[4:])
    assert replies(finding) == []
    (reply,) = replies(run(play, run(play, finding)))

    leader |= {"host": "127.0.0.1", "port": 9095}
    assert reply == encode_response(ApiKey.FETCH, 16, 1, values)


def test_small_response_is_rewritten_at_once() -> None:
    play = asked()

    assert len(replies(answer(play, found(KEYS[:100])))) == 1


def test_response_behind_a_large_one_waits_for_it_even_if_the_broker_goes_away() -> None:
    play = asked()
    play.request(encode_request(METADATA, 1, 2, "c", {"topics": []}))
    work = answer(play, found(KEYS))
    later = encode_response(METADATA, 1, 2, {"controller_id": -1})
    assert replies(answer(play, later[4:])) == []
    play.handle(LinkLost(PASS))

    _, second = replies(run(play, run(play, work)))

    assert second == later


def test_malformed_large_response_closes_the_connection_after_its_thread() -> None:
    play = asked()
    work = answer(play, found(KEYS)[:-1])

    with pytest.raises(BrokerProtocolError, match="malformed answer to API 10 v4"):
        run(play, work)
