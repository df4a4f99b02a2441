"""The search for the rack (zone) of this process at its start, and the check whether any broker has that rack."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import trio

from proxy.cluster.topology import Topology
from proxy.config import RackSource, RoutingConfig
from proxy.config.rack import KUBERNETES_HOST, ZONE_LABEL, NoRack, RackFound, RackMiss, rack_in_file, rack_name
from proxy.net.io.logs import Log

__all__ = ["RackWatch", "find_rack", "log_rack"]

_LIMIT_S: Final = 4.0
"""The time limit for all sources together: the rack is optional, so the start must not wait long for it."""
_STEP_S: Final = 3.0
_MOST_BYTES: Final = 64 * 1024
_TIMEOUT_REMEDY: Final = "give --rack, or take what does not answer out of --rack-from"

RackAndSource = tuple[str, str]
"""The rack, and its source as shown to users."""


async def find_rack(
    routing: RoutingConfig,
    environ: Mapping[str, str],
    *,
    service_account: Path | None = None,
    limit_s: float = _LIMIT_S,
) -> RackFound:
    """Return the rack of this process and its source: ``--rack``, or the first of ``--rack-from`` that has one.

    The sources are environment variables, files and the Kubernetes API. The rack is None if no source has one, or
    if the settings need none. Never raises, and takes at most *limit_s* seconds.

    Args:
        environ: the environment variables.
        service_account: the folder with the token and the CA of the pod; None for the usual one.
    """
    if routing.rack is not None:
        return RackFound(routing.rack, "--rack")
    if routing.replica_selector == "leader":
        return RackFound(None, "not looked for: leaders are read (--replica-selector leader)")
    if not routing.rack_from:
        return RackFound(None, "not looked for (--rack-from none)")
    misses: list[RackMiss] = []
    deadline_s = trio.current_time() + limit_s
    for place in routing.rack_from:
        if trio.current_time() >= deadline_s:
            misses.append(RackMiss(str(place), "no time was left", _TIMEOUT_REMEDY))
            continue
        try:
            with trio.fail_at(deadline_s):
                rack, how = await trio.to_thread.run_sync(
                    _query_source, place, environ, service_account, abandon_on_cancel=True
                )
        except trio.TooSlowError:
            misses.append(RackMiss(str(place), f"no answer within {limit_s:g} s", _TIMEOUT_REMEDY))
        except NoRack as missed:
            misses.append(RackMiss(str(place), missed.why, missed.remedy))
        else:
            return RackFound(rack, how, tuple(misses))
    return RackFound(None, "", tuple(misses))


def _query_source(place: RackSource, environ: Mapping[str, str], account: Path | None) -> RackAndSource:
    """Return the rack that the source *place* has, and the source for users; blocking, for a thread.

    Raises: NoRack: the source has no rack.
    """
    if place.kind == "env":
        return _read_variable(place, environ)
    return _read_file(place) if place.kind == "file" else _query_kubernetes(place, environ, account)


def _read_variable(place: RackSource, environ: Mapping[str, str]) -> RackAndSource:
    text = environ.get(place.name, "")
    if not text.strip():
        raise NoRack("not set")
    try:
        return rack_name(text), str(place)
    except ValueError as wrong:
        raise NoRack(str(wrong), f"set {place.name} to the rack's name") from None


def _read_file(place: RackSource) -> RackAndSource:
    remedy = "let it have the rack's name, or the pod's labels with its zone"
    try:
        with Path(place.name).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise NoRack(f"it has more than {_MOST_BYTES} bytes", remedy)
        return rack_in_file(data.decode()), str(place)
    except (FileNotFoundError, NotADirectoryError):
        raise NoRack("not there") from None
    except OSError as wrong:
        raise NoRack(f"cannot be read: {wrong.strerror}", "let Sidefetch's user read it") from None
    except UnicodeDecodeError:
        raise NoRack("it is no text", remedy) from None
    except ValueError as wrong:
        raise NoRack(str(wrong), remedy) from None


def _query_kubernetes(place: RackSource, environ: Mapping[str, str], account: Path | None) -> RackAndSource:
    if not environ.get(KUBERNETES_HOST):
        raise NoRack("this is no pod of Kubernetes")
    from proxy.net import kubernetes  # its libraries take memory and time, and few users need them

    account = account or kubernetes.SERVICE_ACCOUNT
    zone, node = kubernetes.zone_of_this_node(environ, _STEP_S, account, place.name or ZONE_LABEL)
    return zone, f"{place}: node {node}"


def log_rack(found: RackFound, log: Log) -> None:
    """Log the rack and its source or, without a rack, the tried sources: a warning if one is misconfigured."""
    faults = "; ".join(f"{miss} ({miss.remedy})" for miss in found.faults) or None
    if found.rack is not None:
        log.info("rack-found", rack=found.rack, how=found.how, passed_over=faults)
    elif faults is not None:
        log.warning("rack-unknown", tried="; ".join(map(str, found.misses)), remedy=faults)
    else:
        log.info("rack-unknown", tried="; ".join(map(str, found.misses)) or found.how)


class RackWatch:
    """The check, after each refresh of the topology, that a broker is in this process's rack; warns if none is."""

    def __init__(self, rack: str | None, log: Log) -> None:
        self._rack = rack
        self._log = log
        self._warned_racks: frozenset[str] | None = None
        """The brokers' racks at the last warning; None if there was none, or a broker has had the rack since."""

    def check_topology(self, topology: Topology) -> None:
        """Log a warning if no broker in *topology* has the rack of this process; called after each refresh.

        The warning is repeated only after the set of the brokers' racks has changed. An event is logged when a
        broker has the rack again. Without a rack of this process, or without brokers, do nothing.
        """
        if self._rack is None or not topology.brokers:
            return
        racks = frozenset(broker.rack for broker in topology.brokers.values() if broker.rack)
        if self._rack in racks:
            if self._warned_racks is not None:
                self._log.info("rack-brokers-found", rack=self._rack)
            self._warned_racks = None
        elif racks != self._warned_racks:
            self._warned_racks = racks
            names = ",".join(sorted(racks)) or None
            self._log.warning("no-broker-in-rack", rack=self._rack, racks=names)
