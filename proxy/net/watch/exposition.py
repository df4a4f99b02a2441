"""All instruments in the text that Prometheus reads.

Imports what takes megabytes; to be imported where somebody asks for it.
"""

from collections.abc import Iterator

import attrs
from prometheus_client import ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from proxy.telemetry.facts import Facts
from proxy.telemetry.instruments import INSTRUMENTS, Instrument

__all__ = ["exposition"]


def exposition(facts: Facts, accept: str) -> tuple[bytes, str]:
    """The text, and its type: the one of those that *accept* names, an ``Accept`` header."""
    encoder, content_type = choose_encoder(accept)
    return encoder(_Registry(facts)), content_type


@attrs.frozen
class _Registry:
    """What an encoder asks of a registry. With what the process itself takes."""

    facts: Facts

    def collect(self) -> Iterator[Metric]:
        for instrument in INSTRUMENTS:
            yield _family(instrument, self.facts)
        yield from ProcessCollector(registry=None).collect()


def _family(instrument: Instrument, facts: Facts) -> Metric:
    family_of = CounterMetricFamily if instrument.kind == "counter" else GaugeMetricFamily
    name = instrument.prometheus.removesuffix("_total")
    family = family_of(name, instrument.meaning, labels=instrument.attributes)
    for value, attributes in instrument.read(facts):
        family.add_metric([attributes[label] for label in instrument.attributes], value)
    return family
