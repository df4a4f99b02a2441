"""Event records in the log: no client and no broker can fill it."""

from proxy.events import StalledFetchRecord, TruncationRecord
from proxy.net.downstream.recorder import ConnectionRecorder
from proxy.net.observability.observers import ConnectionInfo
from tests.net.proxied import proxied


async def test_problems_of_fetches_are_logged_once_in_a_while_for_each_broker() -> None:
    async with proxied() as it:
        topology = it.proxy.topology.topology
        recorder = ConnectionRecorder(ConnectionInfo(1, "", topology), it.proxy.services, lambda: topology)
        for node in (1, 1, 2):
            for offset in range(3):
                recorder.observe(TruncationRecord(node, "t", offset, offset, 1, 0, 0))
                recorder.observe(StalledFetchRecord(node, f"client-{offset}", "asking", 5.0, 1, 0, 0, ""))

        assert len(it.logged("log-truncated")) == len(it.logged("fetch-stalled")) == 2
