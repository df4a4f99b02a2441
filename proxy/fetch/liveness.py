"""The rule that no client fetch is forgotten, as one function.

While a client fetch is being answered, each of its partitions is

* answered: its records or its error are here, even if they do not fit into the response; or a broker has answered
  about it within this fetch, and its offsets are known;
* in flight or parked: a request that names exactly its offset is unanswered;
* scheduled: its fetcher's connection is being opened, or is free and will be asked at a time that is set, or again
  once the requests in flight are answered, if a broker has said that it is unchanged and its offsets are not known.

Whatever breaks the rule leaves a client waiting for ever. Tests assert it after every event; in production the
watchdog (``Reader``) answers a fetch that was forgotten all the same.
"""

from collections.abc import Iterator

from proxy.fetch.exchange import Exchange
from proxy.fetch.lanes import Lanes
from proxy.fetch.tables import Tables
from proxy.fetch.waits import Waits
from proxy.wire.fetch import FetchPartition, PartitionKey

__all__ = ["unserved"]


def unserved(
    exchange: Exchange, tables: Tables, lanes: Lanes, waits: Waits, now_s: float
) -> Iterator[PartitionKey]:
    """Return the partitions of *exchange* that nothing will answer. Cost: O(partitions)."""
    answered = exchange.answered
    lacking = tables.sheet.lacking(())
    for key, ask in tables.wanted.asks.items():
        named = tables.wanted.named[key.topic], key.partition
        if named in answered or lanes.held.has(key, ask) or _is_served(key, ask, lanes):
            continue
        is_told = any(key in lane.asks and waits.has_told(lane) for lane in lanes)
        is_told = is_told and (named not in lacking or lanes.is_under_way)
        is_paced = now_s < waits.pace.until_s and any(key in lane.asks for lane in lanes)
        if not (is_told or is_paced):
            yield key


def _is_served(key: PartitionKey, ask: FetchPartition, lanes: Lanes) -> bool:
    if any(lane.asks.get(key) == ask and (lane.is_asking or lane.is_opening) for lane in lanes):
        return True
    return lanes.is_crowded and lanes.is_homeless(key) and any(pair.quick.is_asking for pair in lanes.pairs)
