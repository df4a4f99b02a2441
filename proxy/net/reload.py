"""The settings that may change while Sidefetch runs, and their reloading on a signal."""

from collections.abc import AsyncIterable, Callable
from typing import Final

import attrs
import trio

from proxy.config import OPTIONS, Config
from proxy.errors import ConfigError
from proxy.fetch_rules import FetchRules
from proxy.net.io.logs import Log

__all__ = ["ReloadableSettings", "Reread", "reload_on"]

Reread = Callable[[], Config]
"""Reads the settings as at the start; raises ConfigError. It may block, and is called in a thread."""

_LIVE: Final = ("bypass", "log-level", "share-reads-except")
"""The options that take effect at once."""


@attrs.define
class ReloadableSettings:
    """The settings in effect, which all client connections share; ``apply`` changes some of them while they run."""

    config: Config
    """The settings in effect."""
    log: Log

    @property
    def bypass(self) -> FetchRules:
        """The rules that select fetches to be forwarded to the broker unchanged."""
        return self.config.bypass

    @property
    def share_reads_except(self) -> FetchRules:
        """The rules that select fetches to be answered from a log cache of the client's own."""
        return self.config.upstream.share_reads_except

    def apply(self, fresh: Config) -> None:
        """Take over the settings of *fresh* that may change while Sidefetch runs.

        These are ``bypass``, ``log-level`` and ``share-reads-except``.

        Log the changed options; log a warning with the other options that differ, which need a restart.
        """
        differing = [option.name for option in OPTIONS if option.value_in(fresh) != option.value_in(self.config)]
        level, excepted = fresh.log.level, fresh.upstream.share_reads_except
        self.config = attrs.evolve(
            self.config,
            bypass=fresh.bypass,
            log=attrs.evolve(self.config.log, level=level),
            upstream=attrs.evolve(self.config.upstream, share_reads_except=excepted),
        )
        self.log.level = level
        changed = [name for name in differing if name in _LIVE]
        self.log.info(
            "settings-reloaded",
            changed=",".join(changed) or None,
            bypass=str(fresh.bypass) or None,
            share_reads_except=str(excepted) or None,
        )
        waiting = [name for name in differing if name not in _LIVE]
        if waiting:
            self.log.warning("restart-required", options=",".join(waiting))


async def reload_on(signals: AsyncIterable[int], reread: Reread, live: ReloadableSettings) -> None:
    """At each of *signals*, read the settings again by *reread*, in a thread, and apply them to *live*.

    If *reread* raises ConfigError, the problems are logged, and the settings in effect stay.
    """
    async for _ in signals:
        try:
            fresh = await trio.to_thread.run_sync(reread, abandon_on_cancel=True)
        except ConfigError as wrong:
            live.log.error("settings-rejected", problems="; ".join(map(str, wrong.args)))
        else:
            live.apply(fresh)
