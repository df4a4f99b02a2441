"""Completes what is told of a connection's exchanges by what only shows while their answers are sent."""

from collections.abc import Callable

import attrs
import trio

from proxy.events import Cause, ConversionRecord, ExchangeRecord

__all__ = ["ExchangeRecords"]


class ExchangeRecords:
    """Those of one connection. Answers are sent one after another, and so is what is converted for them."""

    def __init__(self, tell: Callable[[ExchangeRecord], None]) -> None:
        self._tell = tell
        self._memory_s = 0.0
        self._converted: ConversionRecord | None = None

    def waited_for_memory(self, for_s: float) -> None:
        """A broker's answer was not read before there was room for it."""
        self._memory_s += for_s

    def converted(self, record: ConversionRecord) -> None:
        """All of one partition's records, within the answer that is being sent."""
        self._converted = record if self._converted is None else _sum(self._converted, record)

    def sent(self, record: ExchangeRecord, converting_s: float) -> None:
        """The answer is sent, *converting_s* of which nothing was sent since more had to be converted first."""
        now_s = trio.current_time()
        waited_s: dict[Cause, float] = {cause: for_us / 1e6 for cause, for_us in record.waited_us}
        writing_s = now_s - record.ended_s
        converting_s = min(converting_s, writing_s)
        waited_s["write"] = waited_s.get("write", 0.0) + writing_s - converting_s
        waited_s["convert"] = waited_s.get("convert", 0.0) + converting_s
        memory_s = min(self._memory_s, waited_s.get("broker", 0.0))
        if memory_s:
            waited_s["broker"] -= memory_s
            waited_s["budget"] = memory_s
        converted, self._converted, self._memory_s = self._converted, None, 0.0
        waited_us = tuple((cause, round(for_s * 1e6)) for cause, for_s in waited_s.items() if for_s > 0)
        self._tell(attrs.evolve(record, ended_s=now_s, waited_us=waited_us, converted=converted))


def _sum(one: ConversionRecord, other: ConversionRecord) -> ConversionRecord:
    return ConversionRecord(
        other.to_magic,
        one.records + other.records,
        one.in_bytes + other.in_bytes,
        one.out_bytes + other.out_bytes,
        one.padding_bytes + other.padding_bytes,
        one.cpu_us + other.cpu_us,
    )
