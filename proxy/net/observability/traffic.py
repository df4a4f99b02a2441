"""A periodic log event with the bytes of records that were read from brokers, by rack and topic."""

from typing import Final

import trio

from proxy.net.io.logs import Log
from proxy.relay.traffic import Traffic

__all__ = ["log_traffic"]

_EVERY_S: Final = 300.0


async def log_traffic(traffic: Traffic, log: Log, every_s: float = _EVERY_S) -> None:
    """Log ``traffic-summary`` with the totals of *traffic* since the start, every *every_s* seconds, for ever.

    There is no log event if no records were read since the last one.
    """
    told = 0
    while True:
        await trio.sleep(every_s)
        total = traffic.total()
        if total > told:
            log.info("traffic-summary", **traffic.fields())
        told = total
