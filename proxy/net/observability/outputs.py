"""The telemetry outputs that the settings enable; modules of disabled outputs are not imported."""

import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Final

import trio

from proxy.config import Config, TelemetryConfig
from proxy.net.io.logs import Log
from proxy.net.observability.certificates import Certificates
from proxy.net.observability.observers import Observer, Observers
from proxy.net.observability.probes import ProbeState
from proxy.net.observability.telemetry import SampledValues, Telemetry
from proxy.net.upstream.access import Access
from proxy.net.upstream.topology import TopologyService
from proxy.telemetry.exporting import Exporter, metric_exporters, trace_exporters

if TYPE_CHECKING:
    from proxy.net.observability.ledger import LedgerWriter
    from proxy.net.observability.metrics import Metrics
    from proxy.net.observability.traces import Traces

__all__ = ["TelemetryOutputs"]

_EXPORT_S: Final = 3.0
"""The time in seconds for exporting the last spans at the end: with the default grace well within a pod's 30 s."""


class TelemetryOutputs:
    """The telemetry outputs of one proxy, as far as enabled: ledger, traces, metrics export and admin port.

    Use: pass records to ``observers``; serve clients within ``running``, and call ``begin`` there first.
    """

    def __init__(
        self,
        config: Config,
        rack: str | None,
        log: Log,
        counts: Counter[str],
        topology: TopologyService,
        access: Access,
        sources: SampledValues,
        observers: Sequence[Observer] = (),
    ) -> None:
        """Create the outputs that *config* enables.

        Args:
            rack:      the rack of this process; None if it is not known.
            counts:    counters by name; the outputs add to them.
            topology:  the topology service, and *access* the TLS and login, for the topic of the ledger.
            sources:   the objects whose values are sampled for metrics and the status page.
            observers: additional observers.

        Raises: ConfigError: a setting of an output is wrong, or a required package is not installed.
        """
        self._config = config
        self._log = log
        self._certificates = Certificates(config)
        self.ledger = _create_ledger(config, rack, log, counts, topology, access)
        """The ledger; None if it is disabled."""
        self._traces = _create_traces(config.telemetry, log, counts, rack)
        exporters = metric_exporters(os.environ)
        is_looked_at = config.admin.listen is not None or bool(exporters)
        self.telemetry: Telemetry | None = None
        """The present values of the proxy; None if neither the admin port nor a metrics exporter is configured."""
        if is_looked_at:
            self.telemetry = Telemetry(
                rack,
                sources,
                log,
                ledger_lost=lambda: 0 if self.ledger is None else self.ledger.lost_rows,
                certificates=self._certificates.until_s,
            )
        self._metrics = None if self.telemetry is None else _create_metrics(exporters, self.telemetry, log)
        # The traces come first: the ledger row of an exchange contains its trace id.
        kept: list[Observer | None] = [self._traces, self.telemetry, self._metrics, self.ledger]
        self.observers = Observers(*[each for each in kept if each is not None], *observers)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write ledger rows while the ``async with`` block runs; at its end, export and write all that is left."""
        async with nullcontext() if self.ledger is None else self.ledger.running():
            try:
                yield
            finally:
                if self._traces is not None:
                    await self._traces.close(_EXPORT_S)

    async def begin(self, nursery: trio.Nursery, state: Callable[[], ProbeState]) -> None:
        """Start the enabled tasks in *nursery*: the admin server, the metrics export and the check of certificates.

        Return once the admin port is open. *state* returns the values for probes.

        Raises: ConfigError: the port cannot be listened on.
        """
        if self.telemetry is not None:
            nursery.start_soon(self._certificates.run)
            if self._config.admin.listen is not None:
                from proxy.net.observability.admin import AdminServer

                await nursery.start(AdminServer(self._config.admin, state, self.telemetry.snapshot, self._log).run)
        if self._metrics is not None:
            nursery.start_soon(self._metrics.run)


def _create_traces(config: TelemetryConfig, log: Log, counts: Counter[str], rack: str | None) -> "Traces | None":
    exporters = trace_exporters(config.traces, os.environ)
    if not exporters:
        return None
    from proxy.net.observability.traces import traces_of

    return traces_of(exporters, log, counts, rack)


def _create_metrics(exporters: Sequence[Exporter], telemetry: Telemetry, log: Log) -> "Metrics | None":
    if not exporters:
        return None
    from proxy.net.observability.metrics import Metrics, exporter_of

    return Metrics([exporter_of(each) for each in exporters], telemetry.snapshot, log)


def _create_ledger(
    config: Config, rack: str | None, log: Log, counts: Counter[str], topology: TopologyService, access: Access
) -> "LedgerWriter | None":
    if config.ledger.folder is None and config.ledger.topic is None:
        return None
    from proxy.net.observability.ledger import LedgerWriter
    from proxy.net.observability.ledger_topic import LedgerCluster

    return LedgerWriter(
        config.ledger, rack, log, counts, LedgerCluster(topology, access, config.upstream.connect_timeout_s)
    )
