"""``sidefetch demo``: a client without fetch sessions reads a cluster directly, then through Sidefetch.

Such a client names every partition in every fetch. The demonstration compares the cost of both reads.
"""

import signal
import sys
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Final

import trio

from proxy.demo.costs import CostRow, CostTable, FetchCost, compare_costs, count, rack_table
from proxy.demo.old import OldReadResult, read_as_in_2015
from proxy.demo.processes import DemoFailed, ReaderProcess, reader, sidefetch
from proxy.demo.stage import BUSY, EVERY_S, OWN_RACK, PARTITIONS, TOPIC, Stage, busy, embedded_stage
from proxy.errors import leaves

__all__ = ["CLIENT", "demo", "run_until_signal", "watch"]

CLIENT: Final = f"aiokafka {version('aiokafka')}"
"""The name and version of the reading client. Read on import, when the caller handles a missing package."""
_REDRAW_S: Final = 0.25
_OLD_MESSAGES: Final = 50


async def demo(seconds: float, kafka: str | None = None) -> int:
    """Run the demonstration, print its costs to stdout, and return the exit code of the command.

    Args:  seconds: the time of reading, half of it directly and half through Sidefetch; starting takes a few more.
           kafka: "3" or "4", to use real brokers of that version; None for an embedded cluster.
    """
    return await run_until_signal(lambda: _demo(seconds, kafka))


async def _demo(seconds: float, kafka: str | None) -> int:
    table = CostTable()
    if kafka is not None:
        from proxy.demo.kafka import kafka_stage

        setting = kafka_stage(kafka, table.write_text)
    else:
        setting = embedded_stage()
    async with setting as stage:
        table.write_text(_introduction(stage, seconds / 2))
        table.write_head()
        direct = await _show_reads("directly", stage.bootstrap, stage, seconds / 2, table)
        async with sidefetch(stage.bootstrap, "--rack", OWN_RACK) as address:
            through = await _show_reads("through Sidefetch", address, stage, seconds / 2, table)
            old = [
                (way, await read_as_in_2015(bootstrap, TOPIC, busy(), _OLD_MESSAGES))
                for way, bootstrap in (("directly", stage.bootstrap), ("through Sidefetch", address))
            ]
    table.write_text("")
    if not (direct.records and through.records):
        raise DemoFailed("no records were read: nothing was shown")
    table.write_text(compare_costs(direct, through))
    table.write_text(f"\nBytes of records, by the rack that they came from (the reader is in rack {OWN_RACK}):\n")
    table.write_text(rack_table([direct, through], OWN_RACK))
    table.write_text(_describe_old_reads(old))
    return 0


def _describe_old_reads(old: list[tuple[str, OldReadResult]]) -> str:
    """Return the text about the reads, by label, of a client that uses old versions and formats."""
    lines = ["\nA reader of 2015 (Fetch v1, ListOffsets v0, message format 0), which Kafka 4 serves no more:\n"]
    for way, heard in old:
        fate = heard.failure or f"reads {count(heard.messages)} messages"
        lines.append(f"  reading {way:<20}{fate}")
    return "\n".join(lines)


def _introduction(stage: Stage, each_s: float) -> str:
    return (
        f"{stage.what}\n"
        f"One topic of {count(PARTITIONS)} partitions; {BUSY} of them get {1 / EVERY_S:.0f} records a second each,"
        f" the others none.\n"
        f"The reader is {CLIENT}, which names every partition in every fetch. It reads for"
        f" {each_s:.0f} s each way.\n"
        f"Each broker is in a rack of its own, and has all records; the reader knows of no racks.\n"
        f"Counted {stage.counted}, fetches only:\n"
    )


async def _show_reads(way: str, bootstrap: str, stage: Stage, seconds: float, table: CostTable) -> CostRow:
    before = stage.cost()
    async with reader(bootstrap, TOPIC, PARTITIONS) as heard:
        return await watch(way, heard, lambda: stage.cost() - before, seconds, table)


async def watch(
    way: str, heard: ReaderProcess, cost: Callable[[], FetchCost], seconds: float, table: CostTable
) -> CostRow:
    """Show the cost of a running reader for a number of seconds, in a row of *table*; return the row's last state.

    Args:  way: the row's label, such as ``directly``.
           heard: the reader's reports, updated meanwhile.
           cost: returns the cost of its fetches so far.
    """
    start_s = trio.current_time()
    while (passed_s := trio.current_time() - start_s) < seconds:
        table.write_row(CostRow(way, passed_s, cost(), heard.records))
        await trio.sleep(min(_REDRAW_S, seconds - passed_s))
    row = CostRow(way, seconds, cost(), heard.records)
    table.write_row(row, last=True)
    return row


async def run_until_signal(act: Callable[[], Awaitable[int]]) -> int:
    """Run *act* until it returns an exit code; cancel it at SIGTERM or SIGHUP, so that its child processes end.

    If it raises DemoFailed, the message is written to stderr.

    Returns: the exit code of *act*; 1 after DemoFailed; 128 plus the number of the signal that cancelled it.
    """
    code = 1
    ended: list[int] = []
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_end_on_signal, nursery.cancel_scope, ended)
            code = await act()
            nursery.cancel_scope.cancel()
    except* DemoFailed as group:
        for failure in leaves(group):
            sys.stderr.write(f"sidefetch: {failure}\n")
    return 128 + ended[0] if ended else code


async def _end_on_signal(scope: trio.CancelScope, ended: list[int]) -> None:
    # Ctrl-C arrives as KeyboardInterrupt. These two signals would end this process and leave its children running.
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGHUP) as signals:
        async for number in signals:
            ended.append(number)
            scope.cancel()
            return
