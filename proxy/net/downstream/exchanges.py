"""The last values of the telemetry record of a client fetch, known only once its response has been sent."""

from collections.abc import Callable

import attrs
import trio

from proxy.events import Cause, ConversionRecord, ExchangeRecord

__all__ = ["ExchangeRecords"]


class ExchangeRecords:
    """The completion of the telemetry records (``ExchangeRecord``) of the client fetches of one connection.

    Waits for memory and down-conversions are added as they happen; ``complete`` adds them to the record of the next
    response that has been sent, and emits the record. Responses of a connection are sent one after another.
    """

    def __init__(self, emit: Callable[[ExchangeRecord], None]) -> None:
        """Create the state; *emit* gets each completed record."""
        self._emit = emit
        self._memory_s = 0.0
        self._converted: ConversionRecord | None = None

    def add_memory_wait(self, for_s: float) -> None:
        """Add *for_s* seconds for which a broker's response was not received because the memory budget was used up.

        The record of the current fetch counts them as a wait for memory, and no longer as one for the broker.
        """
        self._memory_s += for_s

    def add_conversion(self, record: ConversionRecord) -> None:
        """Add *record*, the down-conversion of one partition's records, to the response that is being sent."""
        self._converted = record if self._converted is None else _add_up(self._converted, record)

    def complete(self, record: ExchangeRecord, converting_s: float) -> None:
        """Complete *record* of a fetch whose response has just been sent, and emit it.

        Sets the time of the end, and adds the time since the response was ready to the waits of the fetch: under
        ``convert`` the *converting_s* seconds for which sending waited for down-conversion, under ``write`` the
        rest. The waits for memory and the conversions that were added since the previous call become part of the
        record.
        """
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
        self._emit(attrs.evolve(record, ended_s=now_s, waited_us=waited_us, converted=converted))


def _add_up(one: ConversionRecord, other: ConversionRecord) -> ConversionRecord:
    return ConversionRecord(
        other.to_magic,
        one.records + other.records,
        one.in_bytes + other.in_bytes,
        one.out_bytes + other.out_bytes,
        one.padding_bytes + other.padding_bytes,
        one.cpu_us + other.cpu_us,
    )
