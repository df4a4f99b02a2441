"""The export of metrics by OpenTelemetry's SDK, whose own thread reads all instruments at each export."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import trio
from opentelemetry.metrics import CallbackOptions, Histogram, Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, MetricExporter, PeriodicExportingMetricReader

from proxy.events import ExchangeRecord, Record
from proxy.net.io.logs import Log
from proxy.net.observability.observers import ConnectionInfo
from proxy.net.observability.sdk import SdkLog, create_resource, import_otlp
from proxy.telemetry.durations import BOUNDS_S, delay_s
from proxy.telemetry.exporting import Exporter
from proxy.telemetry.instruments import DELAY, INSTRUMENTS, Instrument
from proxy.telemetry.snapshot import MetricsSnapshot

__all__ = ["Metrics", "exporter_of"]

_LAST_S: Final = 5.0
"""The longest time in seconds for the last export, when Sidefetch stops."""
_ONE_EXPORT_S: Final = 0.5
"""The lifetime of a snapshot in seconds: the SDK reads the instruments one by one, all from one snapshot."""


def exporter_of(kind: Exporter) -> MetricExporter:
    """Create a metric exporter of *kind*; it takes its endpoint and other settings from ``OTEL_...`` variables.

    Raises: ConfigError: a required package is not installed.
    """
    if kind == "console":
        return ConsoleMetricExporter()
    exporter: MetricExporter = import_otlp(kind, "metric").OTLPMetricExporter()
    return exporter


class Metrics:
    """An observer that exports all metrics by OpenTelemetry's SDK, at the interval of ``OTEL_...`` variables."""

    wants_exchanges = True

    def __init__(
        self, exporters: Sequence[MetricExporter], snapshot: Callable[[], MetricsSnapshot], log: Log
    ) -> None:
        """Create the observer; *snapshot* returns the values of the metrics, and is called in trio's thread."""
        self._exporters = exporters
        self._snapshot = snapshot
        self._taken: MetricsSnapshot | None = None
        self._taken_s = -math.inf
        self._log = log
        self._delays: Histogram | None = None

    def observe(self, _: ConnectionInfo, record: Record, /) -> None:
        """Add the client's delay to the histogram of delays if *record* is an ``ExchangeRecord``; else do nothing.

        The SDK reads all other instruments by itself at each export.
        """
        if self._delays is not None and isinstance(record, ExchangeRecord):
            self._delays.record(delay_s(record))

    def end_connection(self, _: ConnectionInfo, /) -> None:
        """Do nothing at the end of a connection, since this observer keeps no state for connections."""

    async def run(self) -> None:
        """Export the metrics until cancelled, and then once more, for which it takes at most 5 s."""
        sdk_log = SdkLog(self._log)
        sdk_log.begin()
        token = trio.lowlevel.current_trio_token()
        readers = [PeriodicExportingMetricReader(each) for each in self._exporters]
        provider = MeterProvider(readers, create_resource(), shutdown_on_exit=False)
        meter = provider.get_meter("sidefetch")
        for instrument in INSTRUMENTS:
            self._create_instrument(meter, instrument, token)
        self._delays = meter.create_histogram(
            DELAY.name, DELAY.unit, DELAY.meaning, explicit_bucket_boundaries_advisory=BOUNDS_S
        )
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(_LAST_S, shield=True):
                # The SDK's thread calls trio's thread for the facts, so trio's thread must not block here.
                await trio.to_thread.run_sync(partial(provider.shutdown, _LAST_S * 1000), abandon_on_cancel=True)
            sdk_log.end()

    def _create_instrument(self, meter: Meter, instrument: Instrument, token: trio.lowlevel.TrioToken) -> None:
        is_counter = instrument.kind == "counter"
        make = meter.create_observable_counter if is_counter else meter.create_observable_gauge

        def read(_: CallbackOptions) -> Iterable[Observation]:
            try:
                facts = trio.from_thread.run_sync(self._read_points, instrument, trio_token=token)
            except trio.RunFinishedError:
                return []
            return [Observation(value, dict(attributes)) for value, attributes in facts]

        make(instrument.name, [read], instrument.unit, instrument.meaning)

    def _read_points(self, instrument: Instrument) -> list[tuple[float, dict[str, str]]]:
        now_s = trio.current_time()
        if self._taken is None or now_s - self._taken_s > _ONE_EXPORT_S:
            self._taken, self._taken_s = self._snapshot(), now_s
        return [(value, dict(attributes)) for value, attributes in instrument.read(self._taken)]
