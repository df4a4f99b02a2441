"""The comparison of some responses to clients with the broker's response to a direct fetch (``--verify``)."""

import random
from collections.abc import Sequence
from typing import Final

import trio

from proxy.cluster.topology import BrokerId, Topology
from proxy.errors import BrokerProtocolError, BrokerUnavailable, ProxyError
from proxy.fetch.verify import Compared, Sample, compare, direct_fetch, samples
from proxy.net.services import Services
from proxy.net.upstream.brokers import dial
from proxy.wire.fetch import FETCH, MAX_VERSION, FetchRequest, FetchResponse, read_response

__all__ = ["Verifier"]

_CLIENT_ID: Final = "sidefetch-verify"
_TIMEOUT_S: Final = 5.0
"""The time limit of a verification: well below the retention of records that were just read."""
_AGAIN_S: Final = 0.5
_CORRELATION_ID: Final = 0
_OLDEST_VERSION: Final = 4
_LOG_EVERY_S: Final = 1.0


class Verifier:
    """The verification of fetch responses to one client, by direct fetches of the same offsets from its broker.

    One response is verified at a time, on a new connection to the broker. Counts partitions: ``verified`` were
    compared, and the records or aborted transactions of ``verify_differences`` of them differed; for
    ``verify_failed`` the broker returned an error, or no records although there are some. A verification that fails
    as a whole, for example because the broker cannot be reached, counts as one in ``verify_failed``.
    """

    def __init__(self, node_id: BrokerId, services: Services) -> None:
        """Create the verifier of a client of broker *node_id*; counts go to ``services.counts``."""
        self._node_id = node_id
        self._rate = services.verify_rate
        self._address_of = services.topology.address_of
        self._counts = services.counts
        self._log = services.log
        self._budget = services.budget
        self.access = services.access
        self._is_busy = False

    def is_due(self) -> bool:
        """Return whether to verify the next response: at random, by the configured rate, and only one at a time."""
        return not self._is_busy and random.random() < self._rate

    async def verify(self, request: FetchRequest, pieces: Sequence[bytes | memoryview], topology: Topology) -> None:
        """Compare a response to the client with the broker's response to a direct fetch; count and log differences.

        Only partitions with records are compared. Errors are counted and logged, not raised. While another response
        is being verified, this one is not.

        Args:
            request:  the client's fetch, with all partitions of its session.
            pieces:   the whole response, with its size prefix.
            topology: the names and ids of the topics.
        """
        if self._is_busy:
            return
        self._is_busy = True
        try:
            sampled = samples(request, pieces, topology)
            del pieces  # the samples are copies; the rest may be freed
            if sampled:
                await self._compare(sampled, committed=bool(request.options.isolation))
        except (ProxyError, OSError, trio.TooSlowError) as wrong:
            self._counts["verify_failed"] += 1
            node_id = self._node_id
            self._log.info("verify-failed", every_s=_LOG_EVERY_S, per=node_id, node=node_id, reason=wrong)
        finally:
            self._is_busy = False

    async def _compare(self, sampled: Sequence[Sample], *, committed: bool) -> None:
        """Compare the samples, and fetch again those for which the broker returns no records, for up to 5 s.

        A new leader may know a lower high watermark than the previous one reported, until its followers have
        fetched from it, which takes seconds if one of them stalls (see KIP-207).
        """
        until_s = trio.current_time() + _TIMEOUT_S
        while sampled:
            with trio.fail_at(until_s):
                version, response = await self._fetch_directly(sampled, committed=committed)
            is_last = trio.current_time() + 2 * _AGAIN_S > until_s
            again = []
            for each in compare(sampled, version, response, committed=committed):
                if each.equal is False and not each.direct_bytes and not is_last:
                    again.append(each.sample)
                else:
                    self._report(each)
            sampled = again
            if sampled:
                await trio.sleep(_AGAIN_S)

    async def _fetch_directly(self, sampled: Sequence[Sample], *, committed: bool) -> tuple[int, FetchResponse]:
        address = self._address_of(self._node_id)
        async with dial(
            address, client_id=_CLIENT_ID, connect_timeout_s=_TIMEOUT_S, budget=self._budget, access=self.access
        ) as connection:
            served = connection.versions.get(FETCH)
            version = min(served.last, MAX_VERSION) if served is not None else 0
            if version < _OLDEST_VERSION:
                raise BrokerProtocolError(f"{address} serves Fetch up to v{version}")
            frame = direct_fetch(sampled, version, _CORRELATION_ID, _CLIENT_ID, committed=committed)
            await connection.frames.send([frame])
            frames = await connection.frames.receive()
        if not frames:
            raise BrokerUnavailable(f"{address} closed the connection")
        return version, read_response(version, frames[0])

    def _report(self, compared: Compared) -> None:
        sample = compared.sample
        where = {
            "node": self._node_id,
            "topic": sample.topic.name,
            "partition": sample.partition,
            "offset": sample.offset,
        }
        if compared.equal is None:
            self._counts["verify_failed"] += 1
            self._log.info("verify-failed", every_s=_LOG_EVERY_S, per=self._node_id, **where, error=compared.error)
            return
        self._counts["verified"] += 1
        if not compared.equal:
            self._counts["verify_differences"] += 1
            topic_id = sample.topic.topic_id
            self._log.warning(
                "verify-mismatch",
                every_s=_LOG_EVERY_S,
                per=self._node_id,
                **where,
                topic_id=topic_id.hex() if topic_id is not None else None,
                delivered_bytes=sample.delivered_bytes,
                compared_bytes=len(sample.records),
                direct_bytes=compared.direct_bytes,
                aborted_missing=compared.aborted_missing,
                aborted_extra=compared.aborted_extra,
            )
