"""The counting of records that were read from brokers, by rack and topic, and a periodic log event of the sums."""

from typing import Final

import trio

from proxy.cluster.topology import BrokerId, Topology
from proxy.events import FetchRecord
from proxy.net.io.logs import Log
from proxy.relay.traffic import Traffic

__all__ = ["count_fetch", "log_traffic"]

_EVERY_S: Final = 300.0


def count_fetch(traffic: Traffic, record: FetchRecord, topology: Topology, rack: str | None) -> None:
    """Add an upstream fetch, its partitions and its records to *traffic*.

    Args: topology: the topology with the broker's rack.
          rack: the rack of this process; None or empty if it is unknown.
    """
    broker = topology.brokers.get(BrokerId(record.node))
    source_rack = None if broker is None else broker.rack
    crossed = None if source_rack is None or not rack else source_rack != rack
    traffic.add_fetch(record.route, record.size)
    for topic, record_bytes in record.topics:
        traffic.add_records(topic, source_rack, crossed, record_bytes)


async def log_traffic(traffic: Traffic, log: Log, every_s: float = _EVERY_S) -> None:
    """Log ``traffic-summary`` with the totals of *traffic* since the start, every *every_s* seconds, for ever.

    There is no log event if no records were read since the last one.
    """
    logged = 0
    while True:
        await trio.sleep(every_s)
        total = traffic.total()
        if total > logged:
            log.info("traffic-summary", **traffic.as_log_fields())
        logged = total
