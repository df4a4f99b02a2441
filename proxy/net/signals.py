"""The handling of stop signals: the first one drains, the second one ends the process at once."""

import signal
from collections.abc import AsyncIterator, Callable

from proxy.net.io.logs import Log

__all__ = ["stop_on"]


async def stop_on(signals: AsyncIterator[int], stop: Callable[[], None], log: Log) -> None:
    """Call *stop*, which begins to drain the proxy, at the first of *signals*; log each signal.

    Raises: SystemExit: with exit code 1, at the second signal.
    """
    first = True
    async for number in signals:
        name = signal.Signals(number).name
        if not first:
            log.warning("shutdown-forced", signal=name)
            raise SystemExit(1)
        log.info("stopping", signal=name)
        stop()
        first = False
