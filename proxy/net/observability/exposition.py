"""The metrics in Prometheus' text format, for the path ``/metrics``.

The imports take megabytes of memory; import this module only at the first scrape.
"""

from collections.abc import Iterator
from math import isinf

import attrs
from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from proxy.telemetry.instruments import DELAY, INSTRUMENTS, Instrument
from proxy.telemetry.snapshot import MetricsSnapshot

__all__ = ["encode_metrics"]


def encode_metrics(snapshot: MetricsSnapshot, accept: str) -> tuple[bytes, str]:
    """Return all metrics with their values in *snapshot* as text, and the content type of the text.

    The text also has Prometheus' metrics of the process. Its format, Prometheus' own or OpenMetrics, is chosen by
    *accept*, the value of the request's ``Accept`` header.
    """
    encoder, content_type = choose_encoder(accept)
    return encoder(_Registry(snapshot)), content_type


@attrs.frozen
class _Registry:
    """A registry for Prometheus' encoders: all instruments, and the metrics of the process itself."""

    snapshot: MetricsSnapshot

    def collect(self) -> Iterator[Metric]:
        for instrument in INSTRUMENTS:
            yield _make_family(instrument, self.snapshot)
        yield _make_histogram(self.snapshot)
        yield from ProcessCollector(registry=None).collect()


def _make_family(instrument: Instrument, snapshot: MetricsSnapshot) -> Metric:
    family_of = CounterMetricFamily if instrument.kind == "counter" else GaugeMetricFamily
    name = instrument.prometheus.removesuffix("_total")
    family = family_of(name, instrument.meaning, labels=instrument.attributes)
    for value, attributes in instrument.read(snapshot):
        family.add_metric([attributes[label] for label in instrument.attributes], value)
    return family


def _make_histogram(snapshot: MetricsSnapshot) -> Metric:
    family = HistogramMetricFamily(DELAY.prometheus, DELAY.meaning)
    durations = DELAY.read(snapshot)
    buckets = [("+Inf" if isinf(bound_s) else str(bound_s), count) for bound_s, count in durations.cumulative()]
    family.add_metric([], buckets, durations.total_s)
    return family
