"""Completes the records of client fetches with values that are known only after the response was sent."""

from collections.abc import Callable

import attrs
import trio

from proxy.events import Cause, ConversionRecord, ExchangeRecord

__all__ = ["ExchangeRecords"]


class ExchangeRecords:
    """The records of one connection. Responses, and the conversions within them, are sent one after another."""

    def __init__(self, tell: Callable[[ExchangeRecord], None]) -> None:
        self._tell = tell
        self._memory_s = 0.0
        self._converted: ConversionRecord | None = None

    def waited_for_memory(self, for_s: float) -> None:
        """Add time for which a broker's response was not read for lack of memory."""
        self._memory_s += for_s

    def converted(self, record: ConversionRecord) -> None:
        """Add the conversion of one partition's records, within the response that is being sent."""
        self._converted = record if self._converted is None else _sum(self._converted, record)

    def sent(self, record: ExchangeRecord, converting_s: float) -> None:
        """Complete and emit *record*: its response is sent; sending paused for conversion for *converting_s*."""
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
